#!/usr/bin/env python3
"""Rounds per token, predicted and taken, side by side.

    launch/scripts/compare_rounds.py [--train RUN_DIR] [--ead EAD_DIR] [--decode NAME=FILE ...]

--train   the last evaluation of a training run: its held-out text, teacher-forced, full exploration
--ead     what `dex ead` predicts for the text that it decoded itself, full exploration
--decode  what a decoding took: FILE ends with the JSON line that `dex decode` prints last. With the adapters, the type
          and the jobs of the EAD measurement, --expand full takes exactly the rounds that it predicts; other policies
          take other rounds
"""
import argparse
import json
import sys
from pathlib import Path


def read_json(path, last_line=False):
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        return json.loads(text.splitlines()[-1] if last_line else text)
    except (OSError, ValueError, IndexError) as error:
        sys.exit(f"compare_rounds: error: {path} cannot be read: {error}")


def last_evaluation(run):
    """(step, scores, forecast or None) of the adapters as they were evaluated last."""
    found = None
    try:
        lines = (Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        sys.exit(f"compare_rounds: error: {run}/metrics.jsonl cannot be read: {error}")
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn: the run is going on
        for name in ("start", "trained"):
            if name in line.get("evaluation", {}):
                found = (line["step"], line["evaluation"][name], line.get("forecast", {}).get(name))
    if found is None or "rounds" not in found[1]:
        sys.exit(f"compare_rounds: error: {run}/metrics.jsonl holds no evaluation with rounds")
    return found


def rows_of(train, ead, decodes):
    """(what, texts, tokens, rounds predicted or None, rounds taken or None, tokens per second or None) each."""
    rows = []
    if train:
        step, scores, forecast = last_evaluation(train)
        speed = forecast["explorers_here_tokens_per_second"] if forecast else None
        rows.append((f"dex train, step {step}, held-out text", scores["texts"], scores["rows"], scores["rounds"], None, speed))
    if ead:
        summary = read_json(Path(ead) / "summary.json")
        for name, reading in summary["readings"].items():
            rows.append((f"dex ead, {summary['dtype']}, {name}", reading["texts"], reading["tokens"], reading["rounds"], None, None))
    for name, path in decodes:
        counts = read_json(path, last_line=True)["counts"]
        rows.append((f"dex decode, {name}", counts["texts"], counts["tokens"], None, counts["rounds"], counts["tokens_per_second"]))
    return rows


def table(rows):
    lines = [f"{'':<42} {'texts':>6} {'tokens':>7} {'rounds predicted':>16} {'rounds taken':>13} {'rounds/token':>13} {'tokens/s':>9}"]
    for what, texts, tokens, predicted, taken, speed in rows:
        rounds = predicted if taken is None else taken
        lines.append(f"{what:<42} {texts:>6} {tokens:>7} {'-' if predicted is None else predicted:>16} {'-' if taken is None else taken:>13} "
                     f"{rounds / tokens:>13.3f} {'-' if speed is None else f'{speed:.1f}':>9}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--ead", type=Path)
    parser.add_argument("--decode", action="append", default=[], metavar="NAME=FILE")
    options = parser.parse_args()
    decodes = [text.partition("=")[::2] for text in options.decode]
    if any(not path for _, path in decodes) or not (options.train or options.ead or decodes):
        parser.error("wanted --train RUN_DIR, --ead EAD_DIR or --decode NAME=FILE")
    print(table(rows_of(options.train, options.ead, decodes)))


if __name__ == "__main__":
    main()
