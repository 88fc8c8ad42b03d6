// The forward pass against numbers that others computed: transformers (golden file), a float64
// reference (shared), and libtorch's own operators.
#include <catch2/catch.hpp>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/model/model.h"
#include "tests/support/read_all.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using test::all_logits;

nlohmann::json json_file(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

Model whole(const std::filesystem::path& dir, Dtype dtype = Dtype::f32) {
  return Model::load(dir, DepthSet({}, read_model_config(dir).num_layers), dtype);
}

std::vector<Token> greedy(const Model& model, std::vector<Token> ids, std::size_t count) {
  const std::size_t prompt = ids.size();
  while (ids.size() < prompt + count) {
    const at::Tensor row = all_logits(model, ids, 64, 2)[ids.size() - 1];
    ids.push_back(Token(row.argmax().item<std::int64_t>()));
  }
  return {ids.begin() + long(prompt), ids.end()};
}

std::vector<Token> counting(int size, int vocab) {
  std::vector<Token> ids;
  for (int i = 0; i < size; ++i) ids.push_back(Token((i * 37 + i * i) % vocab));
  return ids;
}

}  // namespace

TEST_CASE("SmolLM2 gives transformers' float32 logits") {
  const auto dir = test::demo("model");
  if (!dir) return;
  const auto golden =
      json_file(std::filesystem::path(DEX_SOURCE_DIR) / "tests/golden/forward.json");
  const auto ids = golden.at("ids").get<std::vector<Token>>();
  const Model model = whole(*dir);
  const at::Tensor logits = all_logits(model, ids, 128, 2);
  const auto columns = golden.at("columns").get<std::vector<std::int64_t>>();
  float worst = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* row = logits[i].data_ptr<float>();
    for (std::size_t c = 0; c < columns.size(); ++c)
      worst = std::max(worst,
                       std::abs(row[columns[c]] - golden.at("column_logits")[i][c].get<float>()));
    for (std::size_t c = 0; c < 8; ++c)
      worst = std::max(worst, std::abs(row[golden.at("top_ids")[i][c].get<std::size_t>()] -
                                       golden.at("top_logits")[i][c].get<float>()));
  }
  INFO("largest difference " << worst);
  CHECK(worst < 2e-4f);
  for (const auto& text : golden.at("greedy"))
    CHECK(greedy(model, text.at("prompt_ids").get<std::vector<Token>>(), 8) ==
          std::vector<Token>(text.at("ids").begin(), text.at("ids").begin() + 8));
}

TEST_CASE("stories260K gives the reference's logits and 200 greedy ids") {
  const auto dir = test::shared("data/stories260K/hf");
  if (!dir) return;
  const auto reference = json_file(*dir / "reference.json");
  const auto want = reference.at("greedy_tokens_from_bos").get<std::vector<Token>>();
  const Model model = whole(*dir);
  const auto ids = greedy(model, {want.front()}, want.size() - 1);
  CHECK(ids == std::vector<Token>(want.begin() + 1, want.end()));
  const at::Tensor logits = all_logits(model, std::span(want).first(16), 5, 1);
  const auto first = reference.at("logits_pos0").get<std::vector<float>>(),
             last = reference.at("logits_pos15").get<std::vector<float>>();
  for (std::size_t v = 0; v < first.size(); ++v) {
    CHECK(logits[0][v].item<float>() == Approx(first[v]).margin(2e-4));
    CHECK(logits[15][v].item<float>() == Approx(last[v]).margin(2e-4));
  }
}

TEST_CASE("a Qwen3 model whose head size is not hidden / heads gives the reference's logits") {
  const auto dir = test::shared("cases/d-m1");
  if (!dir) return;
  const auto expected = json_file(*dir / "expected.json");
  const auto ids = expected.at("ids").get<std::vector<Token>>();
  const auto want = expected.at("last_logits").get<std::vector<float>>();
  const at::Tensor f32 = all_logits(whole(*dir), ids, 128, 1)[ids.size() - 1];
  for (std::int64_t v = 0; v < f32.size(0); ++v)
    CHECK(f32[v].item<float>() == Approx(want[v]).margin(1e-3));
  const at::Tensor bf16 = all_logits(whole(*dir, Dtype::bf16), ids, 128, 1)[ids.size() - 1];
  const double cosine = (at::dot(f32, bf16) / (f32.norm() * bf16.norm())).item<double>();
  CHECK(cosine > 0.999);
}

TEST_CASE("rows of the head past the tokenizer's ids are not there") {
  const auto dir = test::shared("cases/d-m1");
  if (!dir) return;
  const Model model = whole(*dir);
  CHECK(model.config.vocab_size == 320);
  CHECK(model.head->vocab() == 300);
}

TEST_CASE("a row's bits do not change with chunking, threads or where the stages are cut") {
  const test::TempDir dir;
  for (const char* family : {"llama", "qwen3"})
    for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
      const auto path =
          test::TinyModel{
              .family = family, .layers = 5, .hidden = 40, .head_dim = 10, .intermediate = 51}
              .write(dir / family);
      const auto ids = counting(67, 97);
      const at::Tensor want = all_logits(whole(path, dtype), ids, 67, 1);
      for (int chunk : {1, 2, 3, 5, 8, 33})
        for (int threads : {1, 2, 3}) {
          CAPTURE(family, name_of(dtype), chunk, threads);
          CHECK(at::equal(
              all_logits(Model::load(path, DepthSet({1, 3, 4}, 5), dtype), ids, chunk, threads),
              want));
        }
    }
}

TEST_CASE("int8 weights of a model stay near its own, and a value that is not finite is refused") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.tied = true}.write(dir / "m");
  const auto ids = counting(20, 97);
  const at::Tensor f32 = all_logits(whole(path), ids, 20, 1),
                   i8 = all_logits(whole(path, Dtype::i8), ids, 20, 1);
  CHECK((f32 - i8).norm().item<double>() < 0.05 * f32.norm().item<double>());
  CHECK_FALSE(at::equal(f32, i8));

  const at::Tensor values = at::tensor({1.0f, -254.0f, 0.0f, 0.0f, 3.0f, 127.0f}).reshape({3, 2});
  const at::Tensor back = Matrix(values, Dtype::i8).rows(at::arange(3));
  CHECK(at::equal(back,
                  // 1 of a step of 2: to even
                  at::tensor({0.0f, -254.0f, 0.0f, 0.0f, 3.0f, 127.0f}).reshape({3, 2})));
  // The scale, 180/127 of the smallest float, is rounded to that float.
  const float least = std::numeric_limits<float>::denorm_min();
  CHECK(at::equal(Matrix(at::full({1, 2}, 180 * least), Dtype::i8).rows(at::arange(1)),
                  at::full({1, 2}, 127 * least)));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    CHECK_THROWS_AS(Matrix(at::full({2, 2}, bad), Dtype::i8), Error);
}

namespace {

// Hidden rows of a training pass, by the CPU's kernels or by libtorch's operators alone.
at::Tensor causal(const Model& model, const std::vector<Token>& ids, bool by_torch = false) {
  at::Tensor x = model.embedding->rows(ids);
  for (const Stage& stage : model.stages)
    x = by_torch ? stage.forward_causal_by_torch(x) : stage.forward_causal(x);
  return x;
}

double distance(const at::Tensor& seen, const at::Tensor& wanted) {
  return ((seen - wanted).norm() / wanted.norm()).item<double>();
}

}  // namespace

TEST_CASE("the decoder's kernels and a training pass compute one model") {
  const test::TempDir dir;
  for (const char* family : {"llama", "qwen3"})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      CAPTURE(family, name_of(dtype));
      const auto path = test::TinyModel{.family = family, .tied = false}.write(dir / family);
      const auto ids = counting(50, 97);
      const at::Tensor ours = all_logits(whole(path, dtype), ids, 50, 1);
      const Model model = Model::load(path, DepthSet({}, read_model_config(path).num_layers), dtype,
                                      WeightLayout::rows);
      const at::Tensor x = causal(model, ids);
      const at::Tensor theirs =
          at::linear(model.head->norm(x).to(model.head->matrix().plain().scalar_type()),
                     model.head->matrix().plain())
              .to(at::kFloat);
      CHECK(distance(ours, theirs) < (dtype == Dtype::f32 ? 1e-5 : 0.04));
    }
}

TEST_CASE(
    "a training pass of libtorch's operators alone, what a GPU runs, is that of the CPU's "
    "kernels") {
  const test::TempDir dir;
  for (const char* family : {"llama", "qwen3"})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const auto path = test::TinyModel{.family = family, .layers = 3}.write(dir / family);
      const Model model = Model::load(path, DepthSet({1}, 3), dtype, WeightLayout::rows);
      for (const int length : {0, 1, 2, 37, 75}) {
        CAPTURE(family, name_of(dtype), length);
        const auto ids = counting(length, 97);
        const at::Tensor ours = causal(model, ids), theirs = causal(model, ids, /*by_torch=*/true);
        REQUIRE(ours.sizes() == theirs.sizes());
        if (length > 0) CHECK(distance(theirs, ours) < (dtype == Dtype::f32 ? 1e-5 : 0.02));
      }
    }
}

}  // namespace dex
