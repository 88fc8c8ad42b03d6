#!/usr/bin/env python3
"""Summary of launch/demo: time per stage, what training changed, the decoded text and the speeds. Reads OUT/stages (each
command's closing JSON line and its seconds) and OUT/decode."""
import json
import sys
from pathlib import Path

import compare_rounds

STAGES = ["model", "prepare", "ead-before", "picture-before", "train", "training-picture", "ead-after", "pictures", "decode-f32",
          "quickest-f32", "decode-bf16", "quickest-bf16", "decode-full"]


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
    print(f"\n{'dtype':<6} {'method':<8} {'tokens/s':>9} {'plain beside it':>16} {'to plain':>9} {'rounds/token':>13}  texts")
    for dtype in ("f32", "bf16"):
        for stage in (f"quickest-{dtype}", f"decode-{dtype}"):
            run = result(out, stage)
            plain, counts = run["plain"], run["counts"]
            rate, plain_rate = counts["tokens_per_second"], plain["tokens_per_second"]
            print(f"{dtype:<6} {run['method']:<8} {rate:>9.1f} {plain_rate:>16.1f} {rate / plain_rate:>8.2f}x "
                  f"{counts['rounds'] / counts['tokens']:>13.2f}  {counts['texts']} equal, bit for bit")
    print("First of each type: what dex decode chooses on this machine by itself. dex: depth exploration, slower here, since its\n"
          "explorers share one memory bus and every round reads all weights; it is for machines where each has a device of its own.")


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
