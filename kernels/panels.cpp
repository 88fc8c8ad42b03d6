#include "kernels/panels.h"

#include <algorithm>

namespace dex {
namespace {

// Calls body with a value of the integer type as wide as dtype's elements.
template <class Body>
void with_element_of(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::f32: return body(std::uint32_t());
    case Dtype::bf16: return body(std::uint16_t());
    case Dtype::i8: return body(std::uint8_t());
  }
}

}  // namespace

void pack_panels(const void* rows, void* packed, std::int64_t out, std::int64_t in, Dtype dtype) {
  with_element_of(dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(rows);
    T* to = static_cast<T*>(packed);
    std::fill(to, to + packed_elements(out, in, dtype), T());
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t k = 0; k < in; ++k) to[packed_index(o, k, in, dtype)] = *from++;
  });
}

void unpack_row(const void* packed, void* row, std::int64_t o, std::int64_t in, Dtype dtype) {
  with_element_of(dtype, [&]<class T>(T) {
    for (std::int64_t k = 0; k < in; ++k)
      static_cast<T*>(row)[k] = static_cast<const T*>(packed)[packed_index(o, k, in, dtype)];
  });
}

}  // namespace dex
