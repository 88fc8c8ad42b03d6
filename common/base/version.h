#pragma once
#include <string>

namespace dex {

std::string version();  // "0.1.0"
// The commit that this was built from, with " and changes" where tracked files differed from it;
// "unknown" where the sources came without their history.
std::string commit();

}  // namespace dex
