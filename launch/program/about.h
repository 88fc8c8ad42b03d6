#pragma once
#include <string>

namespace dex {

// What `dex --version` prints: version and commit, then a line for libraries and one for the CPU.
std::string about();

}  // namespace dex
