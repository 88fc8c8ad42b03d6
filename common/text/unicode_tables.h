// Character classes as the reference tokenizer (HF tokenizers) has them: ids must not depend on the
// Unicode version of this system's libraries. launch/scripts/unicode_tables.py makes the tables.
#pragma once
#include <cstdint>
#include <span>

namespace dex {

struct CodeRange {
  char32_t first, last;
};

// General categories, by the names of Unicode.
// clang-format off
enum class Category : std::uint8_t {
  Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe,
  Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co, Cn
};
// clang-format on

struct CategoryRun {
  char32_t first;  // up to the next run's
  Category category;
};

extern const std::span<const CategoryRun> kCategoryRuns;  // of patterns; ascending, from U+0000
extern const std::span<const CodeRange> kDigitsNumbers;   // of the rule Digits; ascending

}  // namespace dex
