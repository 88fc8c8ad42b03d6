"""launch/scripts/gguf_to_hf.py on a tiny GGUF made here: numbers, row order, tokenizer and refusals."""
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SCRIPT = Path(__file__).parents[2] / "launch" / "scripts" / "gguf_to_hf.py"
HIDDEN, INNER, HEADS, KV_HEADS, HEAD_SIZE = 64, 96, 4, 2, 16
NORMAL, CONTROL = 1, 3


def byte_alphabet():
    """The 256 characters byte-level BPE writes bytes as (GPT-2's table)."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in kept]
    return [chr(b) if b in kept else chr(256 + other.index(b)) for b in range(256)]


TOKENS = ["<|end|>", *byte_alphabet(), "he", "12", "Ġhe"]
MERGES = ["h e", "1 2", "Ġ he"]


def as_llama_cpp_orders(rows, heads):
    """The reordering llama.cpp's converter applies to q and k, from its source."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path, architecture="llama", pre="smollm"):
    """Returns the HF weights it stands for."""
    random = np.random.default_rng(1)
    weights = {"token_embd.weight": random.normal(size=(len(TOKENS), HIDDEN)), "output_norm.weight": random.normal(size=HIDDEN)}
    for name, shape in {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_q": (HEADS * HEAD_SIZE, HIDDEN),
                        "attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN), "attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
                        "attn_output": (HIDDEN, HEADS * HEAD_SIZE), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
                        "ffn_down": (HIDDEN, INNER)}.items():
        weights[f"blk.0.{name}.weight"] = random.normal(size=shape)
    weights = {name: values.astype(np.float32) for name, values in weights.items()}

    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([CONTROL] + [NORMAL] * (len(TOKENS) - 1))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    for name, values in weights.items():
        stored = values
        if "attn_q" in name:
            stored = as_llama_cpp_orders(values, HEADS)
        elif "attn_k" in name:
            stored = as_llama_cpp_orders(values, KV_HEADS)
        if "ffn_up" in name:
            writer.add_tensor(name, quantize(stored, GGMLQuantizationType.Q4_1), raw_dtype=GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def q4_1_values(rows):
    """What blocks of 32 become: a half-precision step and minimum, and 4-bit multiples of the step, two to a byte."""
    blocks = quantize(rows, GGMLQuantizationType.Q4_1).reshape(-1, 20)
    step = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    return (codes * step + least).reshape(rows.shape)


class GgufToHf(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.directory = Path(self.temporary.name)
        self.gguf, self.out = self.directory / "tiny.gguf", self.directory / "model"

    def convert(self):
        return subprocess.run([sys.executable, SCRIPT, self.gguf, self.out], capture_output=True, text=True)

    def test_weights_are_those_of_the_file_in_the_row_order_of_hugging_face(self):
        weights = write_gguf(self.gguf)
        self.assertEqual(self.convert().returncode, 0)
        converted = load_file(self.out / "model.safetensors")
        self.assertEqual(len(converted), len(weights))
        for theirs, ours in {"token_embd": "model.embed_tokens", "output_norm": "model.norm",
                             "blk.0.attn_q": "model.layers.0.self_attn.q_proj", "blk.0.attn_k": "model.layers.0.self_attn.k_proj",
                             "blk.0.attn_v": "model.layers.0.self_attn.v_proj", "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
                             "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm"}.items():
            np.testing.assert_array_equal(converted[ours + ".weight"], weights[theirs + ".weight"], err_msg=ours)
        np.testing.assert_array_equal(converted["model.layers.0.mlp.up_proj.weight"], q4_1_values(weights["blk.0.ffn_up.weight"]))

    def test_the_config_describes_the_model(self):
        write_gguf(self.gguf)
        self.assertEqual(self.convert().returncode, 0)
        config = json.loads((self.out / "config.json").read_text())
        for field, value in {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                             "head_dim": HEAD_SIZE, "intermediate_size": INNER, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                             "tie_word_embeddings": True, "vocab_size": len(TOKENS), "eos_token_id": 0}.items():
            self.assertEqual(config[field], value, field)

    def test_the_tokenizer_splits_digits_one_by_one_and_keeps_control_tokens_whole(self):
        write_gguf(self.gguf)
        self.assertEqual(self.convert().returncode, 0)
        tokenizer = Tokenizer.from_file(str(self.out / "tokenizer.json"))
        self.assertEqual(tokenizer.encode("he he12<|end|>").tokens, ["he", "Ġhe", "1", "2", "<|end|>"])

    def test_what_it_does_not_know_is_refused_and_leaves_nothing(self):
        for options in ({"architecture": "gptneox"}, {"pre": "unheard-of"}):
            write_gguf(self.gguf, **options)
            outcome = self.convert()
            self.assertEqual(outcome.returncode, 2, options)
            self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.stderr)
            self.assertEqual([path.name for path in self.directory.iterdir()], ["tiny.gguf"])

    def convert_here(self):
        """In this process, where the system's calls can be watched. Returns the exit code and what stood on stderr."""
        spec = importlib.util.spec_from_file_location("gguf_to_hf", SCRIPT)
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        errors = io.StringIO()
        with mock.patch.object(sys, "argv", [str(SCRIPT), str(self.gguf), str(self.out)]), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            try:
                script.main()
                return 0, errors.getvalue()
            except SystemExit as end:
                return end.code, errors.getvalue()

    def test_all_is_on_the_disk_before_the_directory_takes_its_name_and_the_name_after(self):
        write_gguf(self.gguf)
        calls = []
        fsync, replace = os.fsync, os.replace

        def synced(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            calls.append(("sync", path.name, path.stat().st_size))
            fsync(descriptor)

        def renamed(source, target):
            calls.append(("rename", Path(source).name, Path(target).name))
            replace(source, target)

        with mock.patch("os.fsync", synced), mock.patch("os.replace", renamed):
            self.assertEqual(self.convert_here()[0], 0)
        at = calls.index(("rename", "model.part", "model"))
        files = {("sync", path.name, path.stat().st_size) for path in self.out.iterdir()}
        self.assertEqual(len(files), 5)
        self.assertEqual(set(calls[:at - 1]), files)  # whole, as they are now
        self.assertEqual(calls[at - 1][:2], ("sync", "model.part"))
        self.assertEqual([call[:2] for call in calls[at + 1:]], [("sync", self.directory.name)])

    def test_a_disk_that_fails_is_one_line_with_exit_code_74_and_leaves_nothing(self):
        write_gguf(self.gguf)
        for place in ("os.fsync", "os.replace", "os.chmod", "pathlib.Path.write_text"):
            with mock.patch(place, side_effect=OSError(28, "No space left on device")):
                code, errors = self.convert_here()
            self.assertEqual(code, 74, place)
            self.assertIn("No space left on device", errors, place)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            self.assertEqual([path.name for path in self.directory.iterdir()], ["tiny.gguf"], place)

    def test_a_cut_file_is_refused_with_its_size(self):
        write_gguf(self.gguf)
        whole = self.gguf.read_bytes()
        for size in (0, 20, len(whole) // 8, len(whole) // 2, len(whole) - 40):
            self.gguf.write_bytes(whole[:size])
            outcome = self.convert()
            self.assertEqual(outcome.returncode, 74, size)
            self.assertIn(f"({size} bytes)", outcome.stderr)


if __name__ == "__main__":
    unittest.main()
