#pragma once
#include <cstdint>

namespace dex {

// The type weights are kept in. Hidden rows are float everywhere. i8 weights have a float scale per
// output.
enum class Dtype : std::uint8_t { f32, bf16, i8 };

constexpr const char* name_of(Dtype dtype) {
  return dtype == Dtype::f32 ? "f32" : dtype == Dtype::bf16 ? "bf16" : "int8";
}
constexpr int size_of(Dtype dtype) {
  return dtype == Dtype::f32 ? 4 : dtype == Dtype::bf16 ? 2 : 1;
}
// What KV rows and adapters are kept in beside weights of `dtype`.
constexpr Dtype unquantized(Dtype dtype) { return dtype == Dtype::i8 ? Dtype::bf16 : dtype; }

}  // namespace dex
