// Small per-row operators. Each row's bits depend on that row alone.
#pragma once
#include <cstdint>

#include "kernels/stream.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

struct RmsNorm {
  const float* x = nullptr;       // (rows, size)
  const float* weight = nullptr;  // (size)
  float* y = nullptr;             // (rows, size); may be x
  int rows = 0, size = 0;
  float eps = 0;
};

// Half-split rotary embedding, in place: pairs (i, i + head_dim/2).
struct Rope {
  float* x = nullptr;                          // (rows, heads, head_dim)
  const std::int32_t* positions = nullptr;     // (rows)
  const float* inverse_frequencies = nullptr;  // (head_dim / 2)
  int rows = 0, heads = 0, head_dim = 0;
};

// One row rotated by angles made before.
struct Rotate {
  float* x = nullptr;              // (heads, head_dim)
  const float* sines = nullptr;    // (head_dim / 2)
  const float* cosines = nullptr;  // (head_dim / 2)
  int heads = 0, head_dim = 0;
};

struct SiluMul {
  const float* gate = nullptr;  // (count)
  const float* up = nullptr;    // (count); null means 1: plain SiLU
  float* y = nullptr;           // (count); may be gate
  std::int64_t count = 0;
};

// y += scale * x
struct Axpy {
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t count = 0;
  float scale = 1;
};

// Writes rows into a KV cache, rounded to its type.
struct KvAppend {
  const float* k = nullptr;  // (rows, row_size)
  const float* v = nullptr;
  const std::int32_t* cache_rows = nullptr;  // (rows)
  void* keys = nullptr;                      // (capacity, row_size) of dtype
  void* values = nullptr;
  int rows = 0, row_size = 0;
  Dtype dtype = Dtype::f32;
};

// What stands between the qkv product and attention, in one pass: q and k per head normed if the
// family does so, rotated; k and v into the cache, rounded to its type.
struct SplitQkv {
  // (rows, (heads + 2 kv_heads) head_dim): queries, keys, values
  const float* qkv = nullptr;
  const float* q_norm = nullptr;               // (head_dim), or null with k_norm
  const float* k_norm = nullptr;               // (head_dim)
  const std::int32_t* positions = nullptr;     // (rows)
  const std::int32_t* cache_rows = nullptr;    // (rows)
  const float* inverse_frequencies = nullptr;  // (head_dim / 2)
  float* q = nullptr;                          // (rows, heads, head_dim)
  void* keys = nullptr;                        // (capacity, kv_heads, head_dim) of dtype
  void* values = nullptr;
  int rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 0;
  Dtype dtype = Dtype::f32;
};

// Rows of a table, widened to float.
struct GatherRows {
  const void* table = nullptr;        // (any, size) of dtype
  const std::int32_t* ids = nullptr;  // (rows)
  float* y = nullptr;                 // (rows, size)
  int rows = 0, size = 0;
  Dtype dtype = Dtype::f32;
};

// float -> dtype, round to nearest even.
void convert(const float* from, void* to, std::int64_t count, Dtype dtype);
// dtype -> float; not of int8
void widen(const void* from, float* to, std::int64_t count, Dtype dtype);

namespace cpu {
void rms_norm(const RmsNorm& p);
void rope(const Rope& p);
void rotate(const Rotate& p);
void silu_mul(const SiluMul& p);
void axpy(const Axpy& p);
void kv_append(const KvAppend& p);
}  // namespace cpu

namespace cuda {
int rms_norm(const RmsNorm& p, Stream stream);
int rope(const Rope& p, Stream stream);
int silu_mul(const SiluMul& p, Stream stream);
int axpy(const Axpy& p, Stream stream);
int kv_append(const KvAppend& p, Stream stream);
int convert(const float* from, void* to, std::int64_t count, Dtype dtype, Stream stream);
// the bits of rms_norm, rope and kv_append one after the other
int split_qkv(const SplitQkv& p, Stream stream);
int gather_rows(const GatherRows& p, Stream stream);
}  // namespace cuda

}  // namespace dex
