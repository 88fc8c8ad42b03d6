#include "kernels/panels.h"

namespace dex {
namespace {

// Calls body with a value of the integer type as wide as dtype's elements.
template <class Body>
void with_element_of(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::f32:
      return body(std::uint32_t());
    case Dtype::bf16:
      return body(std::uint16_t());
    case Dtype::i8:
      return body(std::uint8_t());
  }
}

}  // namespace

void pack_panels(const void* rows, void* packed, std::int64_t out, std::int64_t in, Dtype dtype) {
  with_element_of(dtype, [&]<class T>(T) {
    const T* from = static_cast<const T*>(rows);
    T* to = static_cast<T*>(packed);
    const int step = step_of(dtype);
    // In the order of the packed matrix: a model's load time is spent here.
    for (std::int64_t panel = 0; panel < out; panel += kPanel)
      for (std::int64_t begin = 0; begin < in; begin += step)
        for (std::int64_t o = panel; o < panel + kPanel; ++o)
          for (std::int64_t k = begin; k < begin + step; ++k)
            *to++ = o < out && k < in ? from[o * in + k] : T();
  });
}

void unpack_row(const void* packed, void* row, std::int64_t o, std::int64_t in, Dtype dtype) {
  with_element_of(dtype, [&]<class T>(T) {
    for (std::int64_t k = 0; k < in; ++k)
      static_cast<T*>(row)[k] = static_cast<const T*>(packed)[packed_index(o, k, in, dtype)];
  });
}

}  // namespace dex
