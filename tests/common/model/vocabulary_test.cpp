// A model whose tokenizer and rows, or tokenizer and end tokens, do not fit together: which ids it
// may emit.
#include <catch2/catch.hpp>
#include <limits>

#include "common/base/error.h"
#include "common/model/exit.h"
#include "common/model/model.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/read_all.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using test::TempDir;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Model loaded(const std::filesystem::path& dir, Dtype dtype = Dtype::f32) {
  return Model::load(dir, DepthSet({}, read_model_config(dir).num_layers), dtype);
}

Model loaded_without_tokenizer(const TempDir& dir) {
  std::filesystem::rename(dir / "tokenizer.json", dir / "aside");
  Model model = loaded(dir.path());
  std::filesystem::rename(dir / "aside", dir / "tokenizer.json");
  return model;
}

std::filesystem::path tiny(const TempDir& dir, int rows) {
  test::TinyModel model;
  model.vocab = rows;
  model.write(dir.path());
  test::write_byte_tokenizer(dir.path());
  return dir.path();
}

}  // namespace

TEST_CASE("a tokenizer with more ids than the embedding has rows loads; no such id is emitted") {
  const TempDir dir;
  const Model model = loaded(tiny(dir, test::kByteVocabulary - 2));
  CHECK(model.tokenizer->size() == test::kByteVocabulary);
  CHECK(model.vocab == test::kByteVocabulary - 2);
}

TEST_CASE("ids without a token are never emitted, in a hole or past the last one") {
  constexpr int kAdded = test::kByteVocabulary + 11, kRows = kAdded + 9;
  const TempDir dir;
  tiny(dir, kRows);
  const Model every = loaded_without_tokenizer(dir);
  CHECK(every.vocab == kRows);
  CHECK(every.holes.empty());
  dir.write("added_tokens.json", fmt::format(R"({{"<|far|>": {}}})", kAdded));
  const std::vector<Token> ids{5, 250, kAdded, kAdded - 1, 7};  // a prompt may hold any
  const at::Tensor all = test::all_logits(every, ids, 5, 1);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    const Model model = loaded(dir.path(), dtype);
    CHECK(model.vocab == kAdded + 1);
    REQUIRE(model.holes.size() == kAdded - test::kByteVocabulary);
    CHECK(model.holes.front() == test::kByteVocabulary);
    CHECK(model.holes.back() == kAdded - 1);
    const at::Tensor logits = test::all_logits(model, ids, 5, 1);
    CHECK(logits.slice(1, test::kByteVocabulary, kAdded).max().item<float>() == -kInfinity);
    if (dtype == Dtype::f32)  // nothing else changes, not even in the last bit
      for (const auto& [begin, end] : {std::pair(0, test::kByteVocabulary), {kAdded, kAdded + 1}})
        CHECK(at::equal(logits.slice(1, begin, end), all.slice(1, begin, end)));

    // an exit that is asked for all it has ranks what is left, by a softmax over that alone
    at::Tensor h = model.embedding->rows(ids);
    ThreadPool pool(1);
    const auto answers =
        Exit(*model.head, nullptr)
            .read(h,
                  {.width = kRows,
                   .asked = std::vector<std::vector<Token>>(5, {kAdded - 1, kAdded}),
                   .positions = {0, 1, 2, 3, 4}},
                  pool);
    for (const ExitAnswer& answer : answers) {
      CHECK(answer.numbers);
      REQUIRE(answer.tokens.size() == test::kByteVocabulary + 1);
      double sum = 0;
      for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
        CHECK((answer.tokens[i] < test::kByteVocabulary || answer.tokens[i] == kAdded));
        sum += answer.probabilities[i];
      }
      CHECK(sum == Approx(1).margin(1e-4));
      CHECK(answer.asked[0] == 0);
      CHECK(answer.asked[1] > 0);
    }
  }
}

TEST_CASE("end tokens are those of every file; one that no tokenizer file has is refused by name") {
  const TempDir dir;
  tiny(dir, test::kByteVocabulary + 8);
  dir.write("special_tokens_map.json", R"({"eos_token": "<|eot|>"})");
  test::check_refused(ExitCode::usage, {dir.path().string(), "eos_token is \"<|eot|>\""},
                      [&] { loaded(dir.path()); });
  dir.write("added_tokens.json", R"({"<|eot|>": 262})");
  CHECK(loaded(dir.path()).stop_ids.back() == 262);
  dir.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  CHECK(loaded(dir.path()).stop_ids.back() == 262);
  const auto ids = loaded(dir.path()).stop_ids;
  CHECK(std::find(ids.begin(), ids.end(), 258) != ids.end());
  // an id between the tokenizer's last and the added one
  dir.write("generation_config.json", R"({"eos_token_id": [258, 260]})");
  test::check_refused(ExitCode::usage, {dir.path().string(), "names 260 as eos_token_id"},
                      [&] { loaded(dir.path()); });
}

}  // namespace dex
