// Attention of a whole sequence at once, for passes of the frozen model in training: a row sees the
// rows before it and itself. Faster than row by row, without the promise that a row's bits are
// those of decoding.
#pragma once
#include <cstddef>

#include "kernels/types.h"

namespace dex {

// One sequence, and one KV head of it with the query heads that share it.
struct CausalAttention {
  const void* qkv =
      // (rows, (heads + 2 kv_heads) head_dim) of dtype: queries, keys, values, rotated already
      nullptr;
  void* out = nullptr;  // (rows, heads, head_dim) of dtype
  // what pack_causal() leaves and attend_causally() reads, aligned to 64 bytes
  void* packed = nullptr;
  int rows = 0, heads = 0, kv_heads = 0, head_dim = 0, kv_head = 0;
  float scale = 1;
  Dtype dtype = Dtype::f32;  // or bf16: weights of the values are rounded to it, too; sums are f32
};

constexpr int kCausalRows = 6;  // go through the keys together

namespace cpu {
std::size_t causal_packed_bytes(
    const CausalAttention& p);  // a multiple of 64; does not depend on the pointers
void pack_causal(const CausalAttention& p);
// Rows [first, end), on the caller's thread. What a row gives depends neither on the rows after it
// nor on who computes it, as long as their values are numbers: those of the next few are multiplied
// by zero.
void attend_causally(const CausalAttention& p, int first, int end);
}  // namespace cpu

}  // namespace dex
