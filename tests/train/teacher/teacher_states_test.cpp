#include "train/teacher/teacher_states.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;

namespace {

// One sample alone through the decoder's kernels: hidden states of all positions at every depth of
// the model.
std::vector<at::Tensor> decoder_states(const Model& model, const Sample& sample) {
  ThreadPool pool(1);
  const int count = sample.tokens.size();
  std::vector<std::int32_t> context(sample.tokens.size());
  for (int i = 0; i < count; ++i) context[i] = i;
  std::vector<at::Tensor> states;
  at::Tensor x = model.embedding->rows(sample.tokens);
  for (const Stage& stage : model.stages) {
    KvCache cache = stage.make_cache(count);
    stage.forward(x, RowLayout::contiguous(0, count, context), cache, pool);
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
  const Model decoded = Model::load(path, DepthSet({1, 3}, 4), Dtype::f32);
  auto samples = test::tiny_samples(5, 97, 11);
  // token 0 has no row before it
  samples.push_back({.tokens = {5, 6, 7}, .supervised = {1, 0, 0}});
  const HiddenRows hidden = TeacherStates(model).rows(samples);
  REQUIRE(hidden.h_RD.size() == 2);

  std::int64_t row = 0;
  for (const Sample& sample : samples) {
    const auto states = decoder_states(decoded, sample);
    for (std::size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.supervised[i]) continue;
      const auto position = std::int64_t(i) - 1;
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
  const Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({2}, 4), Dtype::f32,
                                  WeightLayout::rows);
  const std::vector<Sample> samples{{.tokens = {1, 2, 3}, .supervised = {0, 0, 0}}};
  const HiddenRows hidden = TeacherStates(model).rows(samples);
  CHECK(hidden.final_RD.size(0) == 0);
  CHECK(hidden.tokens == 0);
}

TEST_CASE("a sample's rows have the same bits in any company") {
  const test::TempDir dir;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const Model model = Model::load(test::TinyModel{.hidden = 24}.write(dir / "m"),
                                  DepthSet({1, 3}, 4), dtype, WeightLayout::rows);
  auto samples = test::tiny_samples(7, 97, 11);
  samples.push_back({.tokens = {5, 6}, .supervised = {0, 1}});
  const TeacherStates source(model);
  const HiddenRows together = source.rows(samples);
  std::int64_t row = 0;
  for (const Sample& sample : samples) {
    const HiddenRows alone = source.rows(std::span(&sample, 1));
    const auto same = [&](const at::Tensor& all, const at::Tensor& own) {
      return all.slice(0, row, row + own.size(0)).equal(own);
    };
    CHECK(same(together.final_RD, alone.final_RD));
    for (std::size_t k = 0; k < 2; ++k) CHECK(same(together.h_RD[k], alone.h_RD[k]));
    row += alone.final_RD.size(0);
  }
  CHECK(row == together.final_RD.size(0));
}
