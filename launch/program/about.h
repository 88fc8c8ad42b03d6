#pragma once
#include <string>

namespace dex {

// What `dex --version` prints: version and commit, then a line each for libraries, the version
// of the numbers and the CPU.
std::string about();

}  // namespace dex
