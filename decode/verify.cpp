#include "decode/verify.h"

#include <fmt/format.h>

#include <algorithm>

namespace dex {

std::optional<std::string> first_difference(const DecodeResult& plain, const DecodeResult& other) {
  const std::size_t common = std::min(plain.tokens.size(), other.tokens.size());
  for (std::size_t i = 0; i < common; ++i) {
    const CommittedToken &a = plain.tokens[i], &b = other.tokens[i];
    if (a.token != b.token || a.hash != b.hash)
      return fmt::format(
          "token {}: plain decoding gives id {} (logits {:016x}, gap {:.2e}), this one id {} "
          "(logits {:016x}, gap {:.2e})",
          i, a.token, a.hash, a.gap, b.token, b.hash, b.gap);
  }
  if (plain.tokens.size() != other.tokens.size())
    return fmt::format("plain decoding gives {} tokens, this one {}", plain.tokens.size(),
                       other.tokens.size());
  if (plain.finish_reason != other.finish_reason)
    return fmt::format("plain decoding ends by {}, this one by {}", plain.finish_reason,
                       other.finish_reason);
  return std::nullopt;
}

}  // namespace dex
