#include "common/model/layer_shape.h"

#include <catch2/catch.hpp>

namespace dex {
namespace {

TEST_CASE("a layer's shape says what the config says") {
  ModelConfig config;
  config.hidden_size = 96, config.intermediate_size = 200;
  config.num_heads = 6, config.num_kv_heads = 2, config.head_dim = 64;
  config.rms_norm_eps = 1e-6f, config.qk_norm = true;
  config.rope.theta = 500;
  const LayerShape shape(config);
  CHECK(shape.hidden == 96);
  CHECK(shape.intermediate == 200);
  CHECK(shape.q_size() == 384);
  CHECK(shape.kv_size() == 128);
  CHECK(shape.qkv_size() == 640);
  CHECK(shape.qk_norm);
  CHECK(shape.eps == 1e-6f);
  CHECK(shape.attention_scale == 0.125f);
  CHECK(shape.inverse_frequencies == inverse_frequencies(config));
  CHECK(shape.inverse_frequencies.size() == 32);
}

}  // namespace
}  // namespace dex
