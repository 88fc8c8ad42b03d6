// Whether two decoders gave the same text to the last bit.
#pragma once
#include <optional>
#include <string>

#include "decode/decoder.h"

namespace dex {

// The first difference in ids, bits of the final logits or way of ending; nothing when there is
// none.
std::optional<std::string> first_difference(const DecodeResult& plain, const DecodeResult& other);

}  // namespace dex
