// Unicode normalization form C, as the tokenizers that ask for it were made with.
#pragma once
#include <string>
#include <string_view>

namespace dex {

// Of valid UTF-8. The reference library normalizes by the tables of Unicode 9: marks that came
// later are left where they stand, so that ids are equal. `made` holds the result where it differs
// from the input, which is returned otherwise.
std::string_view to_nfc(std::string_view text, std::string& made);

}  // namespace dex
