#!/usr/bin/env python3
"""Summary of launch/demo: time per stage, the decoded text, speeds, and whether both decoders agree. Reads OUT/stages
(each command's closing JSON line and its seconds) and OUT/decode; exit code 1 when any text differs."""
import json
import sys
from pathlib import Path

STAGES = ["model", "prepare", "ead-before", "train", "ead-after", "pictures", "plain-f32", "dex-f32", "plain-bf16", "dex-bf16"]


def result(out, stage):
    try:
        return json.loads((out / "stages" / f"{stage}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def texts(path):
    """custom_id -> text of every answered row."""
    rows = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            choice = row["response"]["body"]["choices"][0] if not row["error"] else None
            rows[row["custom_id"]] = "" if choice is None else choice.get("text", choice.get("message", {}).get("content"))
    return rows


def main():
    out = Path(sys.argv[1])
    print("\nTime per stage (s)")
    for stage in STAGES:
        print(f"  {stage:<11} {(out / 'stages' / f'{stage}.seconds').read_text().strip():>6}")

    same = True
    for dtype in ("f32", "bf16"):
        plain, dex = (texts(out / "decode" / f"{method}-{dtype}.jsonl") for method in ("plain", "dex"))
        same = same and plain == dex
        if dtype == "f32":
            print("\nDecoded by depth exploration (f32)")
            for name, text in dex.items():
                print(f"  [{name}] {text.strip()[:300]!r}")
        speeds = [result(out, f"{method}-{dtype}").get("tokens_per_second") for method in ("plain", "dex")]
        shown = ["?" if speed is None else f"{speed:.1f}" for speed in speeds]
        print(f"\n{dtype}: plain decoding {shown[0]} tokens/s, depth exploration {shown[1]} tokens/s; "
              f"texts {'equal' if plain == dex else 'DIFFERENT'} on {len(plain)} prompts")
    print("Depth exploration is slower here: all explorers share one memory, and every round reads all weights.\n"
          "It needs a device of its own per explorer to be faster.")
    print(f"Pictures: {out / 'ead'}/ead_share.png, ead_map.png")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
