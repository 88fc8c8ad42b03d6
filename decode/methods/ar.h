// Plain (autoregressive) decoding: one row through every layer for each token. The reference.
#pragma once
#include <memory>

#include "decode/methods/method.h"

namespace dex {

Method ar_method();

std::unique_ptr<Decoder> plain_decoder(const Model& model, int threads);

}  // namespace dex
