// What explorers say to each other, as bytes: hidden rows to the next stage, posts to everyone.
#pragma once
#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "common/comm/transport.h"
#include "decode/explorer/answer_board.h"

namespace dex {

Bytes pack_rows(const at::Tensor& h_RD, std::span<const int> which);  // those rows, in that order
at::Tensor unpack_rows(const Bytes& message, std::int64_t hidden);    // (rows, hidden) f32

Bytes pack_post(const Post& post);
Post unpack_post(const Bytes& message);

}  // namespace dex
