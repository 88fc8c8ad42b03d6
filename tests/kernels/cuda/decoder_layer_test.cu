#include "tests/kernels/cuda/layer_problem.h"

namespace dex {
namespace {

using test::bits_of;
using test::part;

TEST_CASE(
    "a row of a layer has the same bits in every company, wave after wave as plain decoding "
    "computes it") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    for (const bool with_norms : {false, true}) {
      const test::LayerProblem p(dtype, with_norms);
      const auto all = p.all_rows();
      const test::Kept keys(p.keys, p.cache_dtype), values(p.values, p.cache_dtype);
      for (const auto& rows :
           {std::vector{5, 0}, std::vector{3, 1}, std::vector{2}, std::vector{4}}) {
        const auto some = p.run(rows, keys, values);
        for (std::size_t i = 0; i < rows.size(); ++i)
          CHECK(bits_of(part(some, i * p.kHidden, p.kHidden)) ==
                bits_of(part(all, std::size_t(rows[i]) * p.kHidden, p.kHidden)));
      }
    }
}

}  // namespace
}  // namespace dex
