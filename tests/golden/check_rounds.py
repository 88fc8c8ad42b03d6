#!/usr/bin/env python3
"""Rounds of the full lattice, derived from `dex ead`'s table alone, against what `dex decode` took for the same texts.

    check_rounds.py --ead DIR --stats OUT.jsonl.stats.jsonl --stages K [--no-decs]

A text takes K + sum of (b + 1) rounds over all its tokens but the last, b the first exit whose proposal is the token.
Needs h5py. Exit code 1 when a text differs.
"""
import argparse
import json
import sys

import h5py
import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ead", required=True)
    parser.add_argument("--stats", required=True)
    parser.add_argument("--stages", type=int, required=True)
    parser.add_argument("--no-decs", action="store_true")
    options = parser.parse_args()
    with h5py.File(f"{options.ead}/ead.h5") as file:
        text, token = file["text"][:], file["token"][:]
        prefix = "adapters." if "adapters.first" in file else "bare."
        if options.no_decs:
            candidates = file[prefix + "candidates"][:]
            branch = (candidates == token[:, None]).argmax(axis=1)  # the final exit always matches
        else:
            branch = file[prefix + "decs_branch"][:]
    stats = [json.loads(line) for line in open(options.stats, encoding="utf-8")]
    wrong = tokens = 0
    for index, line in enumerate(stats):
        own = branch[text == index]
        expected = options.stages + int(np.sum(own[:-1] + 1))
        tokens += len(own)
        if line["rounds"] != expected or line["tokens"] != len(own):
            wrong += 1
            print(f"{line['custom_id']}: {line['tokens']} tokens in {line['rounds']} rounds, expected {len(own)} in {expected}")
    print(json.dumps({"texts": len(stats), "tokens": tokens, "texts_that_differ": wrong, "readings": prefix}))
    return 0 if stats and wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
