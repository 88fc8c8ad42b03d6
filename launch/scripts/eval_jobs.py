#!/usr/bin/env python3
"""Job lines from evaluation sets as they are published, for `dex decode --input` and `dex bench --prompts`.

    launch/scripts/eval_jobs.py FILE --out JOBS.jsonl [--limit N] [--skip N] [--max-tokens N] [--form raw|chat]

FILE, plain or .gz, is known from what stands in it:
  GSM8K       test.jsonl with "question"          a user's message
  HumanEval   HumanEval.jsonl.gz with "prompt"    the raw prompt, to be continued
  MT-bench    question.jsonl with "turns"         a user's message: the first turn (Spec-Bench is the same form)
  XSum        lines with "document", or the human evaluation's text with "Document-Full"
                                                  the raw text, to be continued; with --form chat, to be summarised
"""
import argparse
import gzip
import json
import os
import re
import sys

SUMMARISE = "Summarize the following article in one sentence.\n\n"


def fail(message):
    sys.exit(f"eval_jobs: error: {message}")


def read_text(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, ValueError) as error:
        fail(f"{path} cannot be read: {error}")


def xsum_documents(text):
    """(id, document) of the human evaluation's blocks: ==ID==, a line with a heading, its text, an empty line."""
    for block in re.split(r"^==(?=\w+==$)", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("==\n")
        found = re.search(r"^Document-Full\n(.*?)(?:\n\s*\n|\Z)", rest, flags=re.MULTILINE | re.DOTALL)
        if found:
            yield name, found.group(1)


def question_of(record):
    """(set, id, form, text) of one record, or None where it has no form that is known."""
    if "turns" in record:
        return "mt-bench", record.get("question_id"), "chat", record["turns"][0]
    if "question" in record:
        return "gsm8k", None, "chat", record["question"]
    if "prompt" in record:
        return "humaneval", record.get("task_id"), "raw", record["prompt"]
    if "document" in record:
        return "xsum", record.get("id"), "raw", record["document"]
    return None


def questions(path):
    text = read_text(path)
    if text.startswith("=="):
        found = [("xsum", name, "raw", document) for name, document in xsum_documents(text)]
        return found or fail(f'{path} has no "Document-Full", wanted XSum\'s human evaluation')
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            question = question_of(json.loads(line))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            fail(f"{path}:{number} cannot be read: {error}")
        if question is None or not isinstance(question[3], str):
            fail(f'{path}:{number} has no text in "turns", "question", "prompt" or "document"')
        found.append(question)
    return found


def job_of(number, question, form, max_tokens):
    dataset, name, own_form, text = question
    body = {"temperature": 0, "max_tokens": max_tokens}
    if (form or own_form) == "chat":
        body["messages"] = [{"role": "user", "content": SUMMARISE + text if dataset == "xsum" else text}]
    else:
        body["prompt"] = text
    return {"custom_id": f"{dataset}-{number if name is None else name}", "body": body}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--out", required=True, help="job lines; replaced when there")
    parser.add_argument("--limit", type=int, help="questions at most")
    parser.add_argument("--skip", type=int, default=0, help="questions left out before them")
    parser.add_argument("--max-tokens", type=int, default=128, help="of every job (default: 128)")
    parser.add_argument("--form", choices=("raw", "chat"), help="default: as above")
    options = parser.parse_args()
    for name in ("limit", "skip", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 0:
            fail(f"--{name.replace('_', '-')} is {value}, wanted 0 or more")
    found = questions(options.file)
    end = None if options.limit is None else options.skip + options.limit
    jobs = [job_of(number, question, options.form, options.max_tokens) for number, question in enumerate(found)]
    jobs = jobs[options.skip : end]
    if not jobs:
        fail(f"{options.file} has {len(found)} questions, {options.skip} of them left out: no job is left")
    temporary = f"{options.out}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(job, ensure_ascii=False) + "\n" for job in jobs)
    os.replace(temporary, options.out)
    print(f"eval_jobs: {len(jobs)} of {len(found)} questions in {options.out}")


if __name__ == "__main__":
    main()
