"""tokenize_lines against the tokenizers package, on small tokenizers made here: classes of characters, added tokens.

    .venv/bin/python tests/common/text/reference_test.py build/tokenize_lines
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from pathlib import Path

from tokenizers import Regex, Tokenizer, pre_tokenizers

PROGRAM = sys.argv.pop(1)
LONG = "DEX_LONG" in os.environ

# The split rules of published models.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLITS = {
    "llama3": [LLAMA3],
    "o200k": [O200K],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
    "deepseek": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", "digits"],
    "gpt2": ["gpt2"],
    "smollm2": ["digits", "gpt2"],
    "negated": [r"\P{L}+|\p{^N}", r"\D+|\S+|\d"],
}


def byte_alphabet():
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in kept]
    return [chr(b) if b in kept else chr(256 + other.index(b)) for b in range(256)]


LETTER = byte_alphabet()
LEADS, TAILS = [*range(0xC2, 0xF5)], [*range(0x80, 0xC0)]


def byte_pairs():
    """Pairs of bytes that stand at the ends of neighbouring characters: where words are cut shows in what merges."""
    ascii_bytes = b"aA1 !\n/'"
    near = [(a, b) for a in ascii_bytes for b in [*LEADS, *ascii_bytes]] + [(a, b) for a in TAILS for b in [*ascii_bytes, *LEADS]]
    return [(LETTER[a], LETTER[b]) for a, b in near]


def tokenizer_file(split, pairs, added=(), nfc=False):
    vocabulary = {letter: i for i, letter in enumerate(LETTER)}
    for a, b in pairs:
        vocabulary.setdefault(a + b, len(vocabulary))
    rules = []
    for rule in SPLITS[split]:
        if rule == "digits":
            rules.append({"type": "Digits", "individual_digits": True})
        elif rule != "gpt2":
            rules.append({"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False})
    rules.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": "gpt2" in SPLITS[split]})
    tokens, ids = [], dict(vocabulary)
    for content, settings in added:
        identity = ids.setdefault(content, len(ids))
        tokens.append({"id": identity, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                       "special": False, **settings})
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": rules}, "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": [list(p) for p in pairs]}}


def ours(file, texts, *options):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        done = subprocess.run([PROGRAM, directory, *options], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def theirs(file, texts, special_stays_text=False):
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.encode_special_tokens = special_stays_text
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def assigned():
    """Every code point with a class of its own in the reference, and neighbours without. Of ideographs and Hangul syllables
    between others one in ten, but for the long form."""
    text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    some = pre_tokenizers.Split(Regex(r"[^\p{Cn}\p{Co}]"), "removed", invert=True).pre_tokenize_str(text)
    codes = [word for word, _ in some]
    beside = [chr(ord(c) + 1) for c in codes if ord(c) < 0x10FFFF and ord(c) + 1 not in range(0xD800, 0xE000)]
    known = set(codes)
    inner = [c for c in codes if unicodedata.category(c) == "Lo" and ord(c) > 0x3400 and {chr(ord(c) - 1), chr(ord(c) + 1)} <= known]
    return sorted({*codes, *beside} - (set() if LONG else {c for c in inner if ord(c) % 10}))


class Reference(unittest.TestCase):
    def check(self, texts, got, wanted):
        self.assertEqual(len(got), len(texts))
        for text, g, w in zip(texts, got, wanted):
            self.assertEqual(g, w, ascii(text))

    def test_every_character_is_cut_as_the_reference_does(self):
        codes = assigned()
        texts = ["".join(f"a{c} {c}1{c}{c}\n{c}!A{c}" for c in codes[i:i + 32]) for i in range(0, len(codes), 32)]
        for split in SPLITS:
            with self.subTest(split):
                file = tokenizer_file(split, byte_pairs())
                self.check(texts, ours(file, texts), theirs(file, texts))

    def test_random_texts_are_cut_as_the_reference_does(self):
        rng = random.Random(5)
        codes = assigned()
        parts = [*"  \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2003\u200b\u2028\u3000", "\n\n", "'s", "'S", "'\u017f", "'LL", "12", "3456", "aB", "Ab", "/", "_",
                 "e\u0301", "\u4e2d\u6587", "\uac00", "\u0e33"]
        texts = ["".join(rng.choice((rng.choice(parts), rng.choice(codes))) for _ in range(rng.randint(1, 30))) for _ in range(3000)]
        for split in SPLITS:
            with self.subTest(split):
                file = tokenizer_file(split, byte_pairs())
                self.check(texts, ours(file, texts), theirs(file, texts))

    def added_file(self, rng):
        words = ["ü", "õ", "the", "th", "e", "  ", "    ", " a", "é", "e\u0301", "ab", "a", "中", "<|im_end|>", "<|im|>", "im", "z!"]
        rng.shuffle(words)
        flag = lambda: rng.random() < 0.3
        added = []
        for word in words[:rng.randint(1, len(words))]:
            control = word.startswith("<")
            added.append((word, {"special": control, "normalized": flag() and not control, "single_word": flag() and not control,
                                 "lstrip": flag() and not control, "rstrip": flag() and not control}))
        pairs = [("t", "h"), ("th", "e"), ("a", "b"), (LETTER[0xC3], LETTER[0xA9]), (LETTER[32], "a")]
        return tokenizer_file(rng.choice(list(SPLITS)), pairs, added, nfc=flag())

    def test_added_tokens_are_found_as_the_reference_finds_them(self):
        rng = random.Random(6)
        parts = [*"abtheü zé中!im\n_1", "\u0301", "  ", "õ", "the", "<|im_end|>", "<|im|>", "<|im", "\u00a0", "\u0345", "\u24b6", "\u00b2", "\u216f", "\u200d"]
        for _ in range(2000 if LONG else 60):
            file = self.added_file(rng)
            texts = ["".join(rng.choice(parts) for _ in range(rng.randint(0, 14))) for _ in range(150)]
            self.check(texts, ours(file, texts), theirs(file, texts, special_stays_text=True))
            self.check(texts, ours(file, texts, "--controls"), theirs(file, texts))

    def test_ordinary_tags_stay_text_unless_asked_for(self):
        file = tokenizer_file("llama3", [("i", "n")], [("<think>", {}), ("[TOOL]", {}), ("ü", {})])
        texts = ["<think>ü[TOOL]", "a <think> b"]
        hidden = json.loads(json.dumps(file))
        for token in hidden["added_tokens"][:2]:
            token["special"] = True
        self.check(texts, ours(file, texts), theirs(hidden, texts, special_stays_text=True))
        self.check(texts, ours(file, texts, "--controls"), theirs(file, texts))


if __name__ == "__main__":
    unittest.main()
