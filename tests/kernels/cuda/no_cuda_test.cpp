#include <catch2/catch.hpp>

#include "kernels/decoder_layer.h"
#include "kernels/distill.h"
#include "kernels/induce.h"
#include "kernels/linear.h"
#include "kernels/row_ops.h"
#include "kernels/topk_tokens.h"
#include "kernels/tree_attention.h"

namespace dex::cuda {
namespace {

TEST_CASE("without CUDA every call says that there is no device") {
  const int errors[] = {
      linear({}, {}, nullptr),         linear_add({}, 1, {}, nullptr),
      finish_linear({}, nullptr),      induce_rows({}, {}, nullptr),
      rms_norm({}, nullptr),           rope({}, nullptr),
      silu_mul({}, nullptr),           axpy({}, nullptr),
      kv_append({}, nullptr),          convert(nullptr, nullptr, 0, Dtype::f32, nullptr),
      split_qkv({}, nullptr),          gather_rows({}, nullptr),
      tree_attention({}, {}, nullptr), topk_tokens({}, {}, nullptr),
      distill_rows({}, nullptr),       decoder_layer({}, {}, nullptr)};
  for (const int error : errors) CHECK(error == kNoDevice);
  CHECK(error_text(kNoDevice) == "built without CUDA");
  CHECK(linear_workspace({}) + decoder_layer_workspace({}) + induce_rows_workspace({}) +
            tree_attention_workspace({}) + topk_tokens_workspace({}) ==
        0);
}

}  // namespace
}  // namespace dex::cuda
