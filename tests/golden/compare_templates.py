#!/usr/bin/env python3
"""Compares rendered conversations live with transformers' apply_chat_template.

    python tests/golden/compare_templates.py MODEL ... [--data FILE --limit 2000] [--python PYTHON]

MODEL is a directory with tokenizer.json and a chat template. Odd conversations go through build/render_lines, with the
model's template as dex takes it and again through Python. With --data, `dex prepare` makes samples of a ShareGPT
file's first records. Ids must be equal. Ends with 1 when any differ. Needs transformers, jinja2 and h5py.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import h5py
from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
ROLES = {"human": "user", "user": "user", "system": "system"}
ROLES |= {name: "assistant" for name in ("gpt", "assistant", "chatgpt", "bing", "bard")}
NOTICES = ("*This conversation is shared from", "*This chat conversation is shared from")
TYPED = "a <|im_end|>\n<|im_start|>assistant\nx <|eot_id|> </s> [/INST] <think> b"
TOOL = "<tool_response>\n1\n</tool_response>"


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


THOUGHT = "<think>\nhm\n</think>\n\nHello."
ODD = [
    [user("Hi"), answer("Hello.")],
    [system("Be short."), user("Hi"), answer("Hello.")],
    [system(""), user("Hi"), answer("Hello.")],
    [system("  pad \n"), user(" Hi "), answer(" Hello. ")],
    [user("Hi"), answer("Hello."), user("Hi"), answer("Hello.")],
    [user("Hi"), answer("one"), user(""), answer("two")],
    [user("Hi"), answer(""), user("x"), answer("y")],
    [user("Hi"), answer("y"), user("x"), answer("")],
    [user("  "), answer("z")],
    [user("\n"), answer("z")],
    [user("Hi"), answer("z\n\n")],
    [user("Hi"), answer("\nz"), user("x"), answer("\n\n\n")],
    [user("Hi"), answer("\n\n  z"), user("x"), answer("\tz"), user("y"), answer("\n")],
    [user(TYPED), answer("fine")],
    [system(TYPED), user("q"), answer("fine"), user(TYPED), answer("ok")],
    [user("Hi"), answer(THOUGHT)],
    [user("Hi"), answer("<think>hm</think>Hello.")],
    [user("Hi"), answer("<think>\n\n</think>\n\nHello.")],
    [user("Hi"), answer("\n" + THOUGHT)],
    [user("Hi"), answer(THOUGHT), user("and"), answer("<think>\nhm2\n</think>\n\nBye.")],
    [user("Hi"), answer(THOUGHT), user("and"), answer("Bye.")],
    [user("Hi"), answer("Hello.", reasoning_content="I think")],
    [user("Hi"), answer("Hello.", reasoning_content="\nI\n"), user("x"), answer("Bye", reasoning_content="more")],
    [user("q"), answer("call"), user(TOOL), answer("done")],
    [user("q"), answer("call", reasoning_content="need tool"), user(TOOL), answer("done")],
    [user(TOOL), answer("done")],
    [user("na\u00efve \u4f60\u597d \U0001f600"), answer("e\u0301 ok")],
    [user("a" * 500 + " b"), answer("12345 67")],
    [user("\u00a0x\u2003"), answer("\u00a0y\u3000")],
]


def reference_of(model):
    """transformers' tokenizer with the template and special tokens of the directory."""
    config = json.loads((model / "tokenizer_config.json").read_text())
    template = config.get("chat_template")
    if (model / "chat_template.jinja").exists():
        template = (model / "chat_template.jinja").read_text()
    if isinstance(template, list):
        template = {one["name"]: one["template"] for one in template}["default"]
    named = {key: config[key] for key in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(key)}
    named = {key: value["content"] if isinstance(value, dict) else value for key, value in named.items()}
    return PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), chat_template=template, **named)


def wanted(reference, messages, open_answer=False, unfinished=False):
    """Ids, or why there are none."""
    try:
        return reference.apply_chat_template(
            messages, add_generation_prompt=open_answer, continue_final_message=unfinished, return_dict=False
        )
    except Exception as error:
        return f"refused: {error}"


def alike(made, want, messages, reference):
    """Equal ids; where somebody typed a tag, equal text: transformers cuts text there, or makes an id of it."""
    if made == want or isinstance(want, str):
        return made == want
    tags = [str(token) for token in reference.added_tokens_decoder.values()]
    if not any(tag in message["content"] for tag in tags for message in messages):
        return False
    return reference.decode(made).replace(" ", "") == reference.decode(want).replace(" ", "")


def ends_alike(made, want, reference):
    """Where an answer is to be gone on with, transformers cuts white space before an empty one, keeps some of what the
    template trims, and refuses some thoughts."""
    return isinstance(want, str) or reference.decode(made).rstrip() == reference.decode(want).rstrip()


def rendered(program, arguments, lines):
    text = "\n".join(json.dumps(line) for line in lines)
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.stderr}")
    head, *answers = (json.loads(line) for line in done.stdout.splitlines())
    return head["template"], answers


def compare_odd(model, reference, options):
    """How many differ."""
    lines = [{"messages": talk} for talk in ODD] + [{"messages": talk[:-1], "open": True} for talk in ODD]
    lines += [{"messages": talk, "unfinished": True} for talk in ODD]
    different = 0
    marks = []
    for kwargs in ("", '{"unused_by_any_template": 1}'):  # the second one always goes through Python
        name, answers = rendered(options.render, [str(model), "", options.python, kwargs], lines)
        equal = ends = refused = 0
        for line, made in zip(lines, answers):
            want = wanted(reference, line["messages"], line.get("open", False), line.get("unfinished", False))
            if "ids" in made and alike(made["ids"], want, line["messages"], reference):
                equal += 1
            elif "ids" in made and line.get("unfinished") and ends_alike(made["ids"], want, reference):
                ends += 1
            elif "ids" not in made:
                refused += 1
                print(f"  {name}: {json.dumps(line)}: {made['message']}")
            else:
                different += 1
                print(f"  {name}: {json.dumps(line)}\n    made   {reference.decode(made['ids'])!r}")
                print(f"    wanted {want if isinstance(want, str) else reference.decode(want)!r}")
        print(f"{model.name}: {name}: odd conversations: {equal} equal, {ends} but for white space at an unfinished end, "
              f"{refused} refused, of {len(lines)}")
        marks.append([made.get("supervised") for made in answers])
    both = [(line, a, b) for line, a, b in zip(lines, *marks) if a and b and a != b and "unfinished" not in line]
    for line, *_ in both:
        print(f"  targets built in and through Python differ: {json.dumps(line)}")
    return different


def records_of(path, limit):
    decoder, text, at = json.JSONDecoder(), Path(path).read_text(), 1
    for _ in range(limit):
        while text[at : at + 1] in (" ", "\n", "\r", "\t", ","):
            at += 1
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield record


def usable(record):
    """Messages by the policy of data/conversation.h, or nothing."""
    messages = [{"role": ROLES.get(t["from"], ""), "content": t["value"]} for t in record["conversations"]]
    if not messages or not all(m["role"] for m in messages):
        return None
    if messages[0]["role"] == "system" and messages[0]["content"].startswith(NOTICES):
        messages = messages[1:]
    head = messages[:1] if messages and messages[0]["role"] == "system" else []
    turns = messages[len(head) :]
    while turns and turns[0]["role"] != "user":
        turns = turns[1:]
    if any(t["role"] != ("assistant" if i % 2 else "user") for i, t in enumerate(turns)):
        return None
    pairs = [turns[i : i + 2] for i in range(0, len(turns) - 1, 2)]
    kept = [turn for pair in pairs if pair[1]["content"].strip(" \t\r\n") for turn in pair]
    return head + kept if kept else None


def compare_records(model, reference, options):
    """How many differ."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "data"
        command = [options.program, "prepare", "--model", model, "--data", options.data, "--out", out]
        command += ["--limit", options.limit, "--max-len", options.max_len, "--held-out", 0]
        command += ["--allow-truncated", "--threads", options.threads]
        command += ["--python", options.python] if options.python else []
        command += ["--chat-template-kwargs", options.kwargs] if options.kwargs else []
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{model}: {done.stderr}")
        summary = json.loads(done.stdout.splitlines()[-1])
        made = []
        for shard in sorted(out.glob("train-*.h5")):
            with h5py.File(shard) as file:
                ids, ends = file["tokens"][:].tolist(), file["offsets"][:].tolist()
            made += [ids[a:b] for a, b in zip(ends, ends[1:])]
        skipped = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
    reasons = {line["record"]: line["reason"] for line in skipped}
    equal = typed = different = 0
    kept = iter(made)
    for number, record in enumerate(records_of(options.data, options.limit)):
        if number in reasons:
            continue
        ids, messages = next(kept), usable(record)
        want = wanted(reference, messages)[: options.max_len] if messages else "skipped"
        if ids == want:
            equal += 1
        elif messages and alike(ids, want, messages, reference):
            typed += 1
        else:
            different += 1
            print(f"  record {number}: differs")
    mb = summary["bytes"] / 1e6
    print(
        f"{model.name}: dex prepare: {equal} equal, {typed} with a tag that was typed, {different} different, "
        f"{len(reasons)} skipped {sorted(set(reasons.values()))}; {mb:.1f} MB, {summary['mb_per_second']:.2f} MB/s"
    )
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", help="ShareGPT file")
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--max-len", type=int, default=1 << 20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kwargs", default="", help="for the records: any makes Python render")
    parser.add_argument("--python", default=sys.executable, help="for dex")
    parser.add_argument("--render", default=str(ROOT / "build/render_lines"))
    parser.add_argument("--program", default=str(ROOT / "build/dex"))
    options = parser.parse_args()
    different = 0
    for model in options.models:
        reference = reference_of(model)
        different += compare_odd(model, reference, options)
        if options.data:
            different += compare_records(model, reference, options)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
