// A model whose tokenizer and rows, or tokenizer and end tokens, do not fit together.
#include <catch2/catch.hpp>

#include "common/base/error.h"
#include "common/model/model.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using test::TempDir;

Model loaded(const std::filesystem::path& dir) {
  return Model::load(dir, DepthSet({}, read_model_config(dir).num_layers), Dtype::f32);
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
