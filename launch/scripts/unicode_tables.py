#!/usr/bin/env python3
"""Write common/text/unicode_tables.cpp: the character classes of the reference tokenizer's patterns, asked of it.

    .venv/bin/python launch/scripts/unicode_tables.py > common/text/unicode_tables.cpp

The tokenizers package brings two versions of Unicode: its regex engine's, for patterns, and its standard library's, for the
rule Digits. Each code point is shown to both, so no version has to be known or found elsewhere.
"""
from importlib.metadata import version

from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Split

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CODES))


def matched(pattern):
    return [ord(word) for word, _ in Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(TEXT)]


def digits():
    """A number stands alone, anything else stays with its neighbours."""
    words = Digits(individual_digits=True).pre_tokenize_str("".join(f"x{chr(c)}x" for c in CODES))
    return [ord(word) for word, _ in words if len(word) == 1 and word != "x"]


def ranges(codes):
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def print_table(items):
    line = " "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = " "
        line += f" {item},"
    print(line + "\n};\n")


def main():
    category = {code: "Cs" for code in range(0xD800, 0xE000)}
    for name in CATEGORIES:
        category.update(dict.fromkeys(matched(rf"\p{{{name}}}"), name))
    runs, last = [], None
    for code in range(0x110000):
        if category[code] != last:
            last = category[code]
            runs.append(f"{{0x{code:X}, {last}}}")
    print(f"""// Made by launch/scripts/unicode_tables.py from tokenizers {version("tokenizers")}. Do not edit.
#include "common/text/unicode_tables.h"

namespace dex {{
namespace {{

using enum Category;

// clang-format off
constexpr CategoryRun kRuns[] = {{""")
    print_table(runs)
    print("constexpr CodeRange kNumbers[] = {")
    print_table(f"{{0x{first:X}, 0x{last:X}}}" for first, last in ranges(digits()))
    print("""// clang-format on

}  // namespace

const std::span<const CategoryRun> kCategoryRuns = kRuns;
const std::span<const CodeRange> kDigitsNumbers = kNumbers;

}  // namespace dex""")


if __name__ == "__main__":
    main()
