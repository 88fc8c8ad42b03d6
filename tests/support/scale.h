// How often a test repeats what it does at random: a little in every run, thoroughly under
// launch/test --long.
#pragma once
#include <cstdlib>

namespace dex::test {

inline int times(int usual, int thorough) { return std::getenv("DEX_LONG") ? thorough : usual; }

}  // namespace dex::test
