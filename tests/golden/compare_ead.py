#!/usr/bin/env python3
"""Run `dex ead` without adapters at every layer, and compare each candidate with transformers.

    tests/golden/compare_ead.py --model DIR --prompts FILE.jsonl [--count 8] [--max-tokens 64] [--dex build/dex]

FILE.jsonl: one object per line with "question" (GSM8K) or "prompt". transformers computes in float32 the argmax of
head(norm(h)) at every layer over prompt + the text that dex produced; candidates may differ only where its own two best
logits are closer than 1e-3. Prints the share of equal candidates and the mean first match and stable EAD of both.
Exit code 1 when anything differs clearly.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CLOSE = 1e-3


def read_prompts(path, count):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()][:count]
    return [row.get("question", row.get("prompt")) for row in rows]


def run_dex(arguments, prompts, depths, directory):
    jobs, out = directory / "jobs.jsonl", directory / "ead"
    with open(jobs, "w", encoding="utf-8") as file:
        for i, prompt in enumerate(prompts):
            body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": arguments.max_tokens, "temperature": 0}
            file.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n")
    subprocess.run([arguments.dex, "ead", "--model", arguments.model, "--depths", ",".join(map(str, depths[:-1])),
                    "--prompts", jobs, "--out", out, "--max-tokens", str(arguments.max_tokens), "--dtype", "f32"],
                   check=True, stdout=sys.stderr)
    with h5py.File(out / "ead.h5") as table:
        return [table[name][:].astype(int) for name in ("text", "position", "token", "bare.candidates")]


@torch.no_grad()
def layer_answers(model, ids, first):
    """Argmax and top-2 gap of every layer's read-out for the tokens at positions first.. : (tokens, layers) each."""
    states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1:]
    candidates, gaps = [], []
    for layer, state in enumerate(states):
        rows = state[0, first - 1:-1]
        if layer + 1 < len(states):  # transformers has normed the last one already
            rows = model.model.norm(rows)
        best = model.lm_head(rows).topk(2)
        candidates.append(best.indices[:, 0].numpy())
        gaps.append((best.values[:, 0] - best.values[:, 1]).numpy())
    return np.stack(candidates, axis=1), np.stack(gaps, axis=1)


def mean_ead(candidates):
    """Mean first match and mean stable EAD in layers; the reference is the last layer's answer."""
    matched = candidates == candidates[:, -1:]
    first = matched.argmax(axis=1) + 1
    stable = matched.shape[1] - np.cumprod(matched[:, ::-1], axis=1).sum(axis=1) + 1
    return float(first.mean()), float(stable.mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dex", default="build/dex")
    arguments = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    depths = list(range(1, model.config.num_hidden_layers + 1))
    prompts = read_prompts(arguments.prompts, arguments.count)
    with tempfile.TemporaryDirectory() as directory:
        texts, positions, tokens, ours = run_dex(arguments, prompts, depths, Path(directory))

    expected, gaps = [], []
    for text, prompt in enumerate(prompts):
        rows = np.flatnonzero(texts == text)
        prompt_ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                                   return_dict=True)["input_ids"]
        if positions[rows[0]] != len(prompt_ids) - 1:
            sys.exit(f"the first answer is at position {positions[rows[0]]}, wanted {len(prompt_ids) - 1}: another prompt rendering?")
        candidates, gap = layer_answers(model, list(prompt_ids) + tokens[rows].tolist(), len(prompt_ids))
        expected.append(candidates)
        gaps.append(gap)
    expected, gaps = np.concatenate(expected), np.concatenate(gaps)

    differs = ours != expected
    clearly = differs & (gaps > CLOSE)
    not_greedy = int((tokens != expected[:, -1]).sum())
    print(json.dumps({
        "tokens": len(tokens),
        "candidates": int(differs.size),
        "equal_share": float(1 - differs.mean()),
        "differ": int(differs.sum()),
        "differ_clearly": int(clearly.sum()),
        "tokens_not_greedy": not_greedy,
        "mean_first_and_stable_ead": mean_ead(ours),
        "expected": mean_ead(expected),
    }))
    return 0 if not clearly.any() and not_greedy == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
