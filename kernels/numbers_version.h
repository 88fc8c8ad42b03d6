// Which numbers a program computes: one more whenever the order or the form of a sum changes, so
// that other bits come of the same weights and the same input. What holds computed numbers and is
// gone on with names it.
//   1  a linear's sum in chunks of 512, one after the other
//   2  a linear's sum is a tree over eight parts of its input (input_parts.h)
#pragma once

namespace dex {

constexpr int kNumbersVersion = 2;

}  // namespace dex
