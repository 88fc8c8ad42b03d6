#!/usr/bin/env python3
"""Write forward.json beside this script: what transformers computes in float32.

    tests/golden/make_forward.py MODEL_DIR

  ids         512 tokens of text.txt
  top_ids     per position the 8 likeliest next tokens, likeliest first
  top_logits  their logits
  columns     token ids whose logit is kept at every position, whatever its rank
  column_logits
  mean_nll    of ids[1:]
  greedy      [{"prompt", "prompt_ids", "ids", "least_gap"}]: greedy continuations, and the smallest distance between the two
              best logits on the way (a small one allows another result)
"""
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
LENGTH, TOP, GREEDY = 512, 8, 32
COLUMNS = [0, 2, 28, 198, 504, 9690, 24576, 49151]
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nHow many legs do three spiders have?<|im_end|>\n<|im_start|>assistant\n",
    "1, 2, 4, 8, 16,",
]


def greedy(model, ids, count):
    produced, least_gap = [], float("inf")
    for _ in range(count):
        best = model(torch.tensor([ids + produced])).logits[0, -1].topk(2)
        least_gap = min(least_gap, (best.values[0] - best.values[1]).item())
        produced.append(best.indices[0].item())
    return produced, least_gap


@torch.no_grad()
def main():
    directory = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    ids = tokenizer((HERE / "text.txt").read_text(encoding="utf-8"), add_special_tokens=False).input_ids[:LENGTH]
    if len(ids) != LENGTH:
        sys.exit(f"text.txt has {len(ids)} tokens, wanted at least {LENGTH}")
    logits = model(torch.tensor([ids])).logits[0]
    top = logits.topk(TOP)
    golden = {
        "model": "SmolLM2-135M-Instruct Q4_1, dequantised",
        "ids": ids,
        "mean_nll": torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item(),
        "columns": COLUMNS,
        "top_ids": top.indices.tolist(),
        "top_logits": [[round(x, 5) for x in row] for row in top.values.tolist()],
        "column_logits": [[round(x, 5) for x in row] for row in logits[:, COLUMNS].tolist()],
        "greedy": [],
    }
    for prompt in PROMPTS:
        prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
        produced, least_gap = greedy(model, prompt_ids, GREEDY)
        golden["greedy"].append({"prompt": prompt, "prompt_ids": prompt_ids, "ids": produced,
                                 "least_gap": round(least_gap, 5)})
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    (HERE / "forward.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
