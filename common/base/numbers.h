// The version of the numbers (kernels/numbers_version.h) in files that are gone on with.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dex {

// The field of such a file. Files from before there was one are of version 1.
constexpr const char* kNumbersField = "numbers_version";

// Error(usage) where `about`, read from `file`, was computed under another version: names both, and
// says `way_on`.
void require_same_numbers(const nlohmann::json& about, const std::string& file,
                          const std::string& way_on);

}  // namespace dex
