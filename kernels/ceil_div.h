// Whole numbers rounded up to multiples, on hosts and devices.
#pragma once
#include <type_traits>

namespace dex {

// a / b rounded up, for a >= 0 and b > 0.
template <class T>
constexpr T ceil_div(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}

// The smallest multiple of b that is at least a, for a >= 0 and b > 0.
template <class T>
constexpr T round_up(T a, std::type_identity_t<T> b) {
  return ceil_div(a, b) * b;
}

}  // namespace dex
