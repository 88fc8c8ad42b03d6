// What explorers say to each other: hidden rows to the next stage, exit answers to everyone.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/comm/transport.h"
#include "common/explore/exit_answer.h"

namespace dex {

// those rows, in that order
Bytes pack_rows(const at::Tensor& h_RD, const std::vector<std::int64_t>& which);
// (rows, hidden) f32
at::Tensor unpack_rows(const Bytes& message, std::int64_t hidden);

Bytes pack_answers(const std::vector<ExitAnswer>& answers);
std::vector<ExitAnswer> unpack_answers(const Bytes& message);

}  // namespace dex
