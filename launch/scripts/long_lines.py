"""Names lines of C++ that are longer than 100 columns. What stands in a raw string is as long as it must be."""
import re
import sys

COLUMNS = 100
RAW = re.compile(r'R"([^()\s\\]{0,16})\(')


def long_lines(text):
    end = None  # of the raw string that the line begins in
    for number, line in enumerate(text.split("\n"), 1):
        raw = end is not None
        at = 0
        while True:
            if end is None:
                start = RAW.search(line, at)
                if not start:
                    break
                raw, end, at = True, f'){start[1]}"', start.end()
            closed = line.find(end, at)
            if closed < 0:
                break
            at, end = closed + len(end), None
        if len(line) > COLUMNS and not raw:
            yield number, len(line)


failed = False
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        for number, columns in long_lines(file.read()):
            print(f"{path}:{number}: {columns} columns, wanted at most {COLUMNS}", file=sys.stderr)
            failed = True
sys.exit(failed)
