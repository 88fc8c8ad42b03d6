// Division of whole numbers that rounds up.
#pragma once

namespace dex {

// The smallest whole number that is at least a / b, of a >= 0 and b > 0.
template <typename T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace dex
