#!/usr/bin/env python3
"""Compares token ids live with the `tokenizers` and `sentencepiece` packages, and the speed of both.

    python tests/golden/compare_tokenizers.py --shared DIR --sharegpt FILE

Texts: every message of the first ShareGPT records, and random Unicode strings. The reference of plain text is the same
tokenizer file with its special tokens, and tags such as <think>, left as text; with --controls, the file as it is. Ends with 1 when any ids differ.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

import jinja2
import sentencepiece
import tokenizers

MODELS = ("smollm2", "qwen3", "llama3", "llama2")
SENTENCEPIECE_MODELS = ("llama2",)


CHAT_TEMPLATES = {
    "smollm2": ("smollm2", "chat_template.jinja"),
    "qwen3": ("qwen3", "chat_template.Qwen3-0.6B.jinja"),
    "llama3": ("llama3.1", "chat_template.Llama-3.1-8B-Instruct.jinja"),
}


def sharegpt_records(path, num_records):
    """The texts of each record's turns."""
    decoder = json.JSONDecoder()
    with open(path, encoding="utf-8") as file:
        text = file.read(1)  # the bracket
        assert text == "[", f"{path}: does not begin with ["
        text, records = "", []
        for _ in range(num_records):
            while True:
                text = text.lstrip(" \t\r\n,")
                try:
                    record, end = decoder.raw_decode(text)
                    break
                except json.JSONDecodeError:
                    more = file.read(1 << 20)
                    if not more:
                        return records
                    text += more
            text = text[end:]
            records.append([turn["value"] for turn in record["conversations"]])
    return records


def random_texts(count, seed):
    rng = random.Random(seed)
    spaces = " \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2000\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
    marks = [chr(c) for c in range(0x300, 0x370)] + [chr(c) for c in (0x5B0, 0x64B, 0x93C, 0x9D7, 0xE38, 0x1161, 0x11A8, 0x3099, 0x20D0, 0x1D165)]
    composed = [chr(c) for c in range(0x110000) if unicodedata.decomposition(chr(c)) and not unicodedata.decomposition(chr(c)).startswith("<")]
    numbers = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c))[0] == "N"]
    contractions = ["'s", "'S", "'\u017f", "'re", "'VE", "'ll", "'LL", "'d", "'T", "\u2019s"]
    controls = ["<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<0x0A>", "<think>", "<|eot_id|>", "[INST]"]

    def any_code():
        plane = rng.choice((0, 0, 0, 1, 1, 2, 3, rng.randrange(17)))
        while True:
            code = plane << 16 | rng.randrange(0x10000)
            if not 0xD800 <= code <= 0xDFFF:
                return chr(code)

    def ascii_word():
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ") for _ in range(rng.randint(1, 12)))

    makers = (
        any_code,
        lambda: rng.choice(spaces) * rng.choice((1, 1, 2, 3, 7)),
        lambda: rng.choice(" \n\r\t") * rng.choice((1, 2, 5)),
        ascii_word,
        lambda: rng.choice(composed),
        lambda: unicodedata.normalize("NFD", rng.choice(composed)),
        lambda: rng.choice("aeiouAEqx\u0915\u1100\uac00") + "".join(rng.choice(marks) for _ in range(rng.randint(1, 5))),
        lambda: rng.choice(numbers) * rng.randint(1, 5),
        lambda: str(rng.randrange(10 ** rng.randint(1, 9))),
        lambda: rng.choice(contractions),
        lambda: "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randint(1, 6))),
        lambda: any_code() * rng.randint(2, 40),
        lambda: rng.choice(controls),
        lambda: chr(rng.randrange(0x20)),
        lambda: "\u2581" * rng.randint(1, 3),
    )
    return ["".join(rng.choice(makers)() for _ in range(rng.randint(1, 40))) for _ in range(count)]


def every_character():
    """Each code point between letters, and after a letter and a space: where patterns would differ."""
    codes = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    return ["".join(f"a{c} {c}1{c}{c}\n" for c in codes[i:i + 64]) for i in range(0, len(codes), 64)]


def is_tag(text):
    text = text.lstrip("\u2581")
    return len(text) > 2 and (text[0] + text[-1]) in ("<>", "[]")


class Reference:
    def __init__(self, directory, model, controls):
        self.pieces = None
        if model in SENTENCEPIECE_MODELS:
            self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
            return
        file = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        for token in file["added_tokens"]:
            token["special"] = token["special"] or is_tag(token["content"])
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
        self.tokenizer.encode_special_tokens = not controls

    def ids(self, text):
        if self.pieces:
            return self.pieces.encode(text)
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def chat_prompts(messages_of_records):
    """Conversations of user and assistant turns that end with the user's; answers that white space begins are left out:
    there an answer's tokens begin where the prompt ended, which one text for all does not ask for."""
    prompts = []
    for values in messages_of_records:
        for turns in (1, 3):
            if len(values) >= turns and all(value and not value[0].isspace() for value in values[1:turns:2]):
                prompts.append([{"role": ("user", "assistant")[i % 2], "content": values[i]} for i in range(turns)])
    return prompts


def compare_chats(model, template, path, directory, prompts, ours):
    """Prompts as the published Jinja template and the package make them."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    rendered = environment.from_string(path.read_text(encoding="utf-8"))
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    controls = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    texts = [(prompt, rendered.render(messages=prompt, add_generation_prompt=True, bos_token="<|begin_of_text|>")) for prompt in prompts
             if not any(token["content"] in message["content"] for token in controls for message in prompt)]
    got = ours.prompts([prompt for prompt, _ in texts], template)
    differing = [(text, g, w) for (_, text), g in zip(texts, got) if g != (w := tokenizer.encode(text, add_special_tokens=False).ids)]
    print(f"| {model} | prompts by {template} | {len(texts)} | {sum(map(len, got))} | {len(differing)} |", flush=True)
    for text, seen, wanted in differing[:3]:
        at = next((i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b), min(len(seen), len(wanted)))
        print(f"    {ascii(text[:200])}... at id {at}: {seen[at - 2:at + 4]}, wanted {wanted[at - 2:at + 4]}")
    return len(differing)


class Ours:
    def __init__(self, program, directory):
        self.command = [str(program), str(directory)]

    def ids(self, texts, controls):
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        done = subprocess.run(self.command + (["--controls"] if controls else []), input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def prompts(self, conversations, template):
        lines = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
        done = subprocess.run(self.command + ["--chat", template], input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def seconds(self, file, threads):
        done = subprocess.run(self.command + ["--time", "1", str(threads)], stdin=open(file), capture_output=True, text=True, check=True)
        return tuple(map(float, done.stdout.split()))


def reference_seconds(kind, directory, threads, file):
    """One pass of a package over the texts: clock and CPU seconds. In a process of its own, so that its threads can be set."""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
    command = [sys.executable, __file__, "--time-reference", kind, str(directory), str(threads), file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


def time_reference(kind, directory, threads, file):
    """In that process: the package in its fastest form, one batch and no offsets where it has that."""
    texts = [json.loads(line) for line in open(file, encoding="utf-8")]
    if kind == "sentencepiece":
        pieces = sentencepiece.SentencePieceProcessor(model_file=directory + "/tokenizer.model")
        start, cpu_start = time.perf_counter(), time.process_time()
        pieces.encode(texts, num_threads=int(threads))
    else:
        tokenizer = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")
        encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        start, cpu_start = time.perf_counter(), time.process_time()
        encode(texts, add_special_tokens=False)
    print(time.perf_counter() - start, time.process_time() - cpu_start)


def compare_ids(name, kind, texts, reference, ours, controls):
    got = ours.ids(texts, controls)
    differing = [(text, g, w) for text, g in zip(texts, got) if g != (w := reference.ids(text))]
    print(f"| {name} | {kind} | {len(texts)} | {sum(map(len, got))} | {len(differing)} |", flush=True)
    for text, seen, wanted in differing[:3]:
        at = next((i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b), min(len(seen), len(wanted)))
        print(f"    {ascii(text[:60])}... at id {at}: {seen[at - 2:at + 4]}, wanted {wanted[at - 2:at + 4]}")
    return len(differing)


def main():
    if sys.argv[1:2] == ["--time-reference"]:
        return time_reference(*sys.argv[2:])
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="directory with data/tokenizers")
    parser.add_argument("--sharegpt", type=Path, required=True)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--random", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--program", type=Path, default=root / "build" / "tokenize_lines")
    parser.add_argument("--every-character", action="store_true", help="also each of the 1,112,064 code points")
    parser.add_argument("--pairs", type=int, default=5, help="timed pairs; 0 leaves the timing out")
    arguments = parser.parse_args()

    records = sharegpt_records(arguments.sharegpt, arguments.records)
    sets = {"ShareGPT": [value for values in records for value in values], "random": random_texts(arguments.random, arguments.seed)}
    if arguments.every_character:
        sets["every character"] = every_character()
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}\n")
    print("| tokenizer | texts | number | ids | differing |\n| --- | --- | ---: | ---: | ---: |")
    differences = 0
    for model in arguments.models:
        directory = arguments.shared / "data" / "tokenizers" / model
        ours = Ours(arguments.program, directory)
        for kind, texts in sets.items():
            differences += compare_ids(model, kind, texts, Reference(directory, model, False), ours, False)
        if model not in SENTENCEPIECE_MODELS:
            differences += compare_ids(model, "random, with controls", sets["random"], Reference(directory, model, True), ours, True)
        if model in CHAT_TEMPLATES:
            template, file = CHAT_TEMPLATES[model]
            differences += compare_chats(model, template, directory / file, directory, chat_prompts(records), ours)
    if arguments.pairs:
        time_all(arguments, sets["ShareGPT"])
    return differences > 0


def time_all(arguments, texts):
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"\n{megabytes:.1f} MB of ShareGPT, {arguments.pairs} alternating pairs, medians; the last column is less disturbed by other work")
    print("| tokenizer | against | threads | ours MB/s | theirs MB/s | ratio by the clock | ratio of CPU time |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
        file.flush()
        for model in arguments.models:
            directory = arguments.shared / "data" / "tokenizers" / model
            ours = Ours(arguments.program, directory)
            for kind in ("tokenizers", "sentencepiece") if model in SENTENCEPIECE_MODELS else ("tokenizers",):
                for threads in (1, 2):
                    rows = []
                    for _ in range(arguments.pairs):
                        mine, mine_cpu = ours.seconds(file.name, threads)
                        theirs, theirs_cpu = reference_seconds(kind, directory, threads, file.name)
                        rows.append((megabytes / mine, megabytes / theirs, theirs / mine, theirs_cpu / mine_cpu))
                    columns = (statistics.median(column) for column in zip(*rows))
                    print(f"| {model} | {kind} | {threads} | " + " | ".join(f"{value:.1f}" for value in columns) + " |", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
