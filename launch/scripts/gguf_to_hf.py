#!/usr/bin/env python3
"""Turn a GGUF file of the Llama family into the directory layout of Hugging Face models, weights as float32.

    launch/scripts/gguf_to_hf.py MODEL.gguf OUT_DIR

The numbers are exactly those of the file, dequantised. Three things differ between the two layouts:
  - q and k rows: GGUF interleaves the two halves of each head (llama.cpp rotates neighbours, HF rotates halves);
  - the tokenizer: GGUF keeps tokens, their types and merges; the split rule is known by name only;
  - a head tied to the embedding is absent in both, and config.json says so.
OUT_DIR appears whole or not at all.
"""
import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import SafetensorError
from safetensors.numpy import save_file

CONTROL, USER_DEFINED = 3, 4  # GGUF token types

# Pre-tokenizers by GGUF name, as their tokenizer.json spells them.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT_RULES = {
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
    },
}

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


USAGE, BAD_FILE = 2, 74  # exit codes, as dex has them


def refuse(message, code=USAGE):
    print(f"gguf_to_hf: error: {message}", file=sys.stderr)
    sys.exit(code)


class Gguf:
    def __init__(self, path):
        if not path.is_file():
            refuse(f"{path} is not a file")
        try:
            self.reader = GGUFReader(path)
        except (OSError, ValueError, IndexError) as error:
            refuse(f"{path} ({path.stat().st_size} bytes) is no whole GGUF file: {error}", BAD_FILE)
        self.path = path
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        if field is None:
            if default is None:
                refuse(f"{self.path} has no field {key}")
            return default
        return field.contents()


def make_config(gguf):
    architecture = gguf.get("general.architecture")
    if architecture != "llama":
        refuse(f"{gguf.path} has architecture {architecture!r}, wanted 'llama'")
    if "rope_freqs.weight" in gguf.tensors or gguf.get("llama.rope.scaling.type", "none") != "none":
        refuse(f"{gguf.path} scales its rotary angles; only plain ones are supported")
    hidden = gguf.get("llama.embedding_length")
    heads = gguf.get("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": gguf.get("llama.feed_forward_length"),
        "num_hidden_layers": gguf.get("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": gguf.get("llama.attention.head_count_kv", heads),
        "head_dim": gguf.get("llama.rope.dimension_count", hidden // heads),
        "max_position_embeddings": gguf.get("llama.context_length"),
        # The file holds a float32; its shortest decimal is the number that was meant (1e-05, not 9.99999974e-06).
        "rms_norm_eps": float(str(np.float32(gguf.get("llama.attention.layer_norm_rms_epsilon")))),
        "rope_theta": float(gguf.get("llama.rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "vocab_size": int(gguf.tensors["token_embd.weight"].shape[1]),
        "bos_token_id": gguf.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": gguf.get("tokenizer.ggml.padding_token_id", gguf.get("tokenizer.ggml.eos_token_id")),
        "torch_dtype": "float32",
    }


def make_generation_config(config):
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def make_tokenizer(gguf):
    model, split = gguf.get("tokenizer.ggml.model"), gguf.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in SPLIT_RULES:
        refuse(f"{gguf.path} has tokenizer {model!r} with split rule {split!r}, "
               f"wanted 'gpt2' with one of {sorted(SPLIT_RULES)}")
    tokens, types = gguf.get("tokenizer.ggml.tokens"), gguf.get("tokenizer.ggml.token_type")
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": kind == CONTROL}
        for i, (token, kind) in enumerate(zip(tokens, types)) if kind in (CONTROL, USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": SPLIT_RULES[split],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(gguf.get("tokenizer.ggml.merges")),
        },
    }


def make_tokenizer_config(gguf, config):
    tokens = gguf.get("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(gguf.get("tokenizer.ggml.add_bos_token", False)),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "pad_token": tokens[config["pad_token_id"]],
        "unk_token": tokens[gguf.get("tokenizer.ggml.unknown_token_id", 0)],
        "chat_template": gguf.get("tokenizer.chat_template"),
    }


def uninterleave(rows, heads):
    """Rows of q or k: (head, pair, half) as llama.cpp has them -> (head, half, pair)."""
    out, columns = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, columns).swapaxes(1, 2).reshape(out, columns)


def hf_name(name):
    base, dot, kind = name.rpartition(".")
    if dot and kind == "weight" and base in WHOLE_TENSORS:
        return WHOLE_TENSORS[base] + ".weight"
    parts = base.split(".")
    if kind == "weight" and len(parts) == 3 and parts[0] == "blk" and parts[2] in LAYER_TENSORS:
        return f"model.layers.{parts[1]}.{LAYER_TENSORS[parts[2]]}.weight"
    refuse(f"tensor {name} has no place in the Llama layout")


def make_weights(gguf, config):
    weights = {}
    for name, tensor in gguf.tensors.items():
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if ".attn_q." in name:
            values = uninterleave(values, config["num_attention_heads"])
        elif ".attn_k." in name:
            values = uninterleave(values, config["num_key_value_heads"])
        weights[hf_name(name)] = np.ascontiguousarray(values)
    return weights


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def convert(gguf, out):
    config = make_config(gguf)
    out.mkdir(parents=True)
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", make_generation_config(config))
    write_json(out / "tokenizer.json", make_tokenizer(gguf))
    write_json(out / "tokenizer_config.json", make_tokenizer_config(gguf, config))
    weights = make_weights(gguf, config)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    os.chmod(out / "model.safetensors", (out / "config.json").stat().st_mode)  # save_file makes it private
    return weights


def sync(path):
    """Waits until a file's bytes, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(part, out):
    """A directory whose files are on the disk takes its name; the name is there to stay, too."""
    for path in part.iterdir():
        sync(path)
    sync(part)
    os.replace(part, out)
    sync(out.absolute().parent)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.out.exists():
        refuse(f"{arguments.out} exists already")

    part = arguments.out.with_name(arguments.out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        weights = convert(Gguf(arguments.gguf), part)
        publish(part, arguments.out)
    except (OSError, SafetensorError) as error:
        refuse(f"{arguments.out} cannot be written: {error}", BAD_FILE)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(json.dumps({"model": str(arguments.out), "tensors": len(weights),
                      "parameters": sum(w.size for w in weights.values())}))


if __name__ == "__main__":
    main()
