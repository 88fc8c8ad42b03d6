#pragma once
#include <cstdint>

namespace dex {

// The type weights and KV rows are kept in. Hidden rows are float everywhere.
enum class Dtype : std::uint8_t { f32, bf16 };

constexpr const char* name_of(Dtype dtype) { return dtype == Dtype::f32 ? "f32" : "bf16"; }
constexpr int size_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

}  // namespace dex
