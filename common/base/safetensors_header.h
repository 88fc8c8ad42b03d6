// The header of one safetensors file: 8 bytes of length, a JSON object, then the tensors' bytes
// without gaps.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "common/base/safetensors.h"

namespace dex {

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;  // their bytes lie in the file given
  std::map<std::string, std::string> metadata;
};

// Checks everything the format promises before a tensor is handed out. Error(io) names the place,
// the value seen and the value wanted. Needs memory in proportion to the file, whatever it claims.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& place);

// The bytes that stand before the tensors' own, which follow in name order.
std::string make_safetensors_header(const std::map<std::string, StoredTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace dex
