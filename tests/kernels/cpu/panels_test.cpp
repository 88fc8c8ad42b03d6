#include "kernels/panels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace dex {
namespace {

template <class T>
void check_panels(Dtype dtype) {
  for (const std::int64_t out : {1, 31, 32, 33, 70})
    for (const std::int64_t in : {1, 2, 7, 64}) {
      CAPTURE(out, in, name_of(dtype));
      std::vector<T> rows(out * in);
      std::iota(rows.begin(), rows.end(), T(1));
      std::vector<T> packed(packed_elements(out, in, dtype), T(77));
      pack_panels(rows.data(), packed.data(), out, in, dtype);

      std::vector<T> row(in);
      for (std::int64_t o = 0; o < out; ++o) {
        unpack_row(packed.data(), row.data(), o, in, dtype);
        REQUIRE(std::equal(row.begin(), row.end(), rows.begin() + o * in));
      }
      // The rest are zeros: nothing was lost or written twice.
      const auto zeros = std::count(packed.begin(), packed.end(), T());
      REQUIRE(zeros == std::ptrdiff_t(packed.size()) -
                           std::count_if(rows.begin(), rows.end(), [](T v) { return v != T(); }));
    }
}

TEST_CASE("Panels keep every element of a matrix and pad with zeros") {
  check_panels<float>(Dtype::f32);
  check_panels<std::uint16_t>(Dtype::bf16);
  check_panels<std::int8_t>(Dtype::i8);
}

TEST_CASE("A panel's outputs lie side by side, a step of two for the small types") {
  CHECK(packed_index(0, 0, 10, Dtype::f32) == 0);
  CHECK(packed_index(1, 0, 10, Dtype::f32) == 1);
  CHECK(packed_index(0, 1, 10, Dtype::f32) == 32);
  CHECK(packed_index(32, 0, 10, Dtype::f32) == 320);
  CHECK(packed_index(1, 0, 10, Dtype::bf16) == 2);
  CHECK(packed_index(0, 1, 10, Dtype::bf16) == 1);
  CHECK(packed_index(0, 2, 10, Dtype::i8) == 64);
  CHECK(packed_index(32, 0, 9, Dtype::i8) == 320);  // nine columns make five steps
}

}  // namespace
}  // namespace dex
