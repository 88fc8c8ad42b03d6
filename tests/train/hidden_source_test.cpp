#include "train/hidden_source.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;

namespace {

// One sample alone through the decoder's kernels: hidden states of all positions at every depth of the model.
std::vector<at::Tensor> decoder_states(const Model& model, const Sample& sample) {
  Workers workers(1);
  const int count = static_cast<int>(sample.tokens.size());
  std::vector<std::int32_t> context(sample.tokens.size());
  for (int i = 0; i < count; ++i) context[static_cast<std::size_t>(i)] = i;
  std::vector<at::Tensor> states;
  at::Tensor x = model.embedding->rows(sample.tokens);
  for (const Stage& stage : model.stages) {
    KvCache cache = stage.make_cache(count);
    stage.forward(x, RowLayout::contiguous(0, count, context), cache, workers);
    states.push_back(x.clone());
  }
  return states;
}

}  // namespace

TEST_CASE("hidden rows are the decoder's, supervised positions only, whatever shares the call") {
  const test::TempDir dir;
  const std::string family = GENERATE("llama", "qwen3");
  const auto path = test::TinyModel{.family = family}.write(dir / "m");
  const Model model = Model::load(path, DepthSet({1, 3}, 4), Dtype::f32, WeightLayout::rows);
  auto samples = test::tiny_samples(5, 97, 11);
  samples.push_back({.tokens = {5, 6, 7}, .supervised = {1, 0, 0}});  // token 0 has no row before it
  const HiddenRows hidden = HiddenSource(model).rows(samples);
  REQUIRE(hidden.h_RD.size() == 2);

  std::int64_t row = 0;
  for (const Sample& sample : samples) {
    const auto states = decoder_states(model, sample);
    for (std::size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.supervised[i]) continue;
      const auto position = static_cast<std::int64_t>(i) - 1;
      CHECK(at::allclose(hidden.h_RD[0][row], states[0][position], 1e-4, 1e-4));
      CHECK(at::allclose(hidden.h_RD[1][row], states[1][position], 1e-4, 1e-4));
      CHECK(at::allclose(hidden.final_RD[row], states[2][position], 1e-4, 1e-4));
      ++row;
    }
  }
  CHECK(row == hidden.final_RD.size(0));
  std::int64_t wanted = 0;
  for (const Sample& sample : samples) wanted += loss_rows(sample);
  CHECK(row == wanted);
}

TEST_CASE("samples without a target give no rows and cost no tokens") {
  const test::TempDir dir;
  const Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({2}, 4), Dtype::f32, WeightLayout::rows);
  const std::vector<Sample> samples{{.tokens = {1, 2, 3}, .supervised = {0, 0, 0}}};
  const HiddenRows hidden = HiddenSource(model).rows(samples);
  CHECK(hidden.final_RD.size(0) == 0);
  CHECK(hidden.tokens == 0);
}
