// What explorers say to each other: hidden rows to the next stage, exit answers to everyone.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/exit_answer.h"
#include "common/transport.h"

namespace dex {

Bytes pack_rows(const at::Tensor& h_RD, const std::vector<std::int64_t>& which);  // those rows, in that order
at::Tensor unpack_rows(const Bytes& message, std::int64_t hidden);                // (rows, hidden) f32

Bytes pack_answers(const std::vector<ExitAnswer>& answers);
std::vector<ExitAnswer> unpack_answers(const Bytes& message);

}  // namespace dex
