#!/usr/bin/env python3
"""Job lines from public evaluation sets, as `dex decode --input` and `dex ead --prompts` take them.

    eval_prompts.py --gsm8k test.jsonl --mt-bench question.jsonl --count 64 >prompts.jsonl

Takes the sets in turn, one question of each, until COUNT lines are written.
"""
import argparse
import itertools
import json
import sys


def questions(path, field):
    with open(path, encoding="utf-8") as file:
        for line in file:
            value = json.loads(line)[field]
            yield value[0] if isinstance(value, list) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", help="JSON lines with a field question")
    parser.add_argument("--mt-bench", help="JSON lines with a field turns")
    parser.add_argument("--spec-bench", help="JSON lines with a field turns")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--max-tokens", type=int)
    options = parser.parse_args()
    sets = [(name, questions(path, field)) for name, path, field in
            [("gsm8k", options.gsm8k, "question"), ("mt-bench", options.mt_bench, "turns"), ("spec-bench", options.spec_bench, "turns")] if path]
    if not sets:
        sys.exit("eval_prompts: error: name at least one set")
    turns = itertools.chain.from_iterable(itertools.zip_longest(*[[(name, i, q) for i, q in enumerate(qs)] for name, qs in sets]))
    for name, index, question in itertools.islice((t for t in turns if t), options.count):
        body = {"messages": [{"role": "user", "content": question}]}
        if options.max_tokens:
            body["max_tokens"] = options.max_tokens
        print(json.dumps({"custom_id": f"{name}-{index}", "method": "POST", "url": "/v1/chat/completions", "body": body}))


if __name__ == "__main__":
    main()
