// Hidden rows from an explorer to the next.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <span>

namespace dex {

class RowLink {
 public:
  virtual ~RowLink() = default;
  // Those of the rows, in that order, to the next explorer; does not wait for it.
  virtual void send(const at::Tensor& h_RD, std::span<const int> which) = 0;
  virtual at::Tensor receive() = 0;  // (rows, hidden) f32, what the explorer before has sent
};

}  // namespace dex
