// Decoders behind one interface: the same prompt gives the same tokens from each of them.
#pragma once
#include <span>

#include "decode/text_run.h"

namespace dex {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Error(usage) as room_for(). `on_token` may be empty; it is called in order, on one thread,
  // before generate returns.
  virtual DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                                const OnToken& on_token) = 0;
};

}  // namespace dex
