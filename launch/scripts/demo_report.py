#!/usr/bin/env python3
"""Summary of launch/demo: time per stage, what training changed, the decoded text and the speeds. Reads OUT/stages (each
command's closing JSON line and its seconds) and OUT/decode."""
import json
import sys
from pathlib import Path

import compare_rounds

STAGES = ["model", "prepare", "ead-before", "picture-before", "train", "training-picture", "ead-after", "pictures", "decode-f32",
          "decode-bf16", "decode-full"]


def result(out, stage):
    return json.loads((out / "stages" / f"{stage}.json").read_text(encoding="utf-8"))


def print_times(out):
    print("\nTime per stage")
    for stage in STAGES:
        print(f"  {stage:<16} {(out / 'stages' / f'{stage}.seconds').read_text().strip():>5} s")


def print_readiness(out):
    readings = result(out, "ead-after")["readings"]
    print("\nReadiness: share of generated tokens that each depth already knows")
    for name, reading in readings.items():
        shares = ", ".join(f"{100 * share:.0f} %" for share in reading["agreement"])
        print(f"  {name:<12} {shares}; stable EAD {reading['mean_stable']:.1f} layers on average")


def print_texts(out):
    print("\nDecoded by depth exploration (f32)")
    for line in (out / "decode" / "f32.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        print(f"\n  [{row['custom_id']}]")
        for text in row["response"]["body"]["choices"][0]["message"]["content"].strip().splitlines():
            print(f"    {text}")


def print_speeds(out):
    print(f"\n{'dtype':<6} {'plain tokens/s':>15} {'dex tokens/s':>13} {'dex rounds/token':>17}  texts")
    for dtype in ("f32", "bf16"):
        run = result(out, f"decode-{dtype}")
        plain, dex = run["plain"], run["counts"]
        print(f"{dtype:<6} {plain['tokens_per_second']:>15.1f} {dex['tokens_per_second']:>13.1f} "
              f"{dex['rounds'] / dex['tokens']:>17.2f}  {dex['texts']} equal, bit for bit")
    print("Depth exploration is slower here: its explorers share one memory bus, and every round reads all weights.\n"
          "It is faster where each explorer has a device of its own.")


def print_rounds(out):
    decodes = [(name, out / "stages" / f"decode-{stage}.json")
               for name, stage in (("f32, full", "full"), ("f32, budget", "f32"), ("bf16, budget", "bf16"))]
    print("\nRounds: predicted for full exploration, and taken")
    print(compare_rounds.table(compare_rounds.rows_of(out / "adapters", out / "ead" / "after", decodes)))


def main():
    out = Path(sys.argv[1])
    print_times(out)
    print_readiness(out)
    print_texts(out)
    print_speeds(out)
    print_rounds(out)
    print(f"\nPictures: {out}/adapters/training.png, {out}/ead/before/ead_map.png (every layer), {out}/ead/ead_share.png, {out}/ead/ead_map.png")


if __name__ == "__main__":
    main()
