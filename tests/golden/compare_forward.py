#!/usr/bin/env python3
"""Compare every logit of a forward pass with transformers in float32.

    tests/golden/compare_forward.py --model DIR --logits FILE [--ids FILE] [--tolerance 2e-3]

--logits: raw little-endian float32, one row of the vocabulary per token; --ids: a JSON list, or an object with "ids"
(default: forward.json). Exit code 1 when a logit is further off than the tolerance, or an argmax differs at a position
whose two best logits are further apart than that.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--ids", type=Path, default=Path(__file__).parent / "forward.json")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    arguments = parser.parse_args()

    ids = json.loads(arguments.ids.read_text())
    ids = ids["ids"] if isinstance(ids, dict) else ids
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    expected = model(torch.tensor([ids])).logits[0].numpy()
    ours = np.fromfile(arguments.logits, dtype="<f4")
    if ours.size != expected.size:
        sys.exit(f"{arguments.logits} holds {ours.size} numbers, wanted {expected.shape[0]} x {expected.shape[1]}")
    ours = ours.reshape(expected.shape)

    worst = np.abs(ours - expected).max(axis=1)
    best_two = np.sort(expected, axis=1)[:, -2:]
    clear = best_two[:, 1] - best_two[:, 0] > arguments.tolerance
    differs = ours.argmax(axis=1) != expected.argmax(axis=1)
    print(json.dumps({
        "rows": len(ids),
        "largest_difference": float(worst.max()),
        "at_position": int(worst.argmax()),
        "mean_difference": float(np.abs(ours - expected).mean()),
        "argmax_differs": int(differs.sum()),
        "argmax_differs_clearly": int((differs & clear).sum()),
    }))
    # NaN compares false: ask for what must hold.
    return 0 if worst.max() <= arguments.tolerance and not (differs & clear).any() else 1


if __name__ == "__main__":
    sys.exit(main())
