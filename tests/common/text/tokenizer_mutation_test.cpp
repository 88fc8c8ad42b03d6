// Damaged tokenizer files: loaded or refused with an Error, never a crash.
#include <catch2/catch.hpp>
#include <random>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/text/tokenizer.h"
#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tokenizer.h"

using namespace dex;

namespace {

std::string damaged(std::string bytes, std::mt19937& random) {
  switch (random() % 3) {
    case 0:
      return bytes.substr(0, random() % bytes.size());
    case 1:
      bytes[random() % bytes.size()] = char(random());
      break;
    default:
      bytes.erase(random() % bytes.size(), 1 + random() % 20);
  }
  return bytes;
}

void check_all(const std::string& name, const std::string& sound, int count) {
  std::mt19937 random(11);
  test::TempDir dir;
  int loaded = 0;
  for (int i = 0; i < count; ++i) {
    dir.write(name, damaged(sound, random));
    try {
      const auto tokenizer = load_tokenizer(dir.path());
      tokenizer->decode(tokenizer->encode("the hellow answer \xED\x95\x9C  12\n"));
      ++loaded;
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Catch::Contains(name));
      CHECK((error.code() == ExitCode::io || error.code() == ExitCode::usage));
    }
  }
  CHECK(loaded < count);
}

}  // namespace

TEST_CASE("a damaged tokenizer.json is loaded or refused") {
  check_all("tokenizer.json", test::tiny_bpe_json().dump(), 1500);
  check_all("tokenizer.json", test::tiny_bpe_json({.merges_as_pairs = true, .nfc = true}).dump(1),
            500);
}

TEST_CASE("a damaged tokenizer.model is loaded or refused") {
  test::TempDir dir;
  test::train_sentencepiece(dir);
  check_all("tokenizer.model", read_file(dir / "tokenizer.model"), 2000);
}

TEST_CASE("a tokenizer.json with values of the wrong kind is refused") {
  using nlohmann::json;
  const json sound = test::tiny_bpe_json();
  const std::vector<json> values{nullptr,
                                 true,
                                 -1,
                                 1e300,
                                 "x",
                                 json::array(),
                                 json::object(),
                                 json{{"type", 5}},
                                 18446744073709551615u};
  test::TempDir dir;
  for (const char* path :
       {"/model", "/model/vocab", "/model/vocab/a", "/model/merges", "/model/merges/0",
        "/added_tokens", "/added_tokens/0", "/added_tokens/0/id", "/added_tokens/0/content",
        "/normalizer", "/pre_tokenizer/pretokenizers", "/pre_tokenizer/pretokenizers/0",
        "/pre_tokenizer/pretokenizers/0/pattern", "/pre_tokenizer/pretokenizers/0/pattern/Regex",
        "/pre_tokenizer/pretokenizers/1/use_regex", "/post_processor"})
    for (const json& value : values) {
      json file = sound;
      file[json::json_pointer(path)] = value;
      dir.write("tokenizer.json", file.dump());
      try {
        load_tokenizer(dir.path())->encode("the");
      } catch (const Error& error) {
        CHECK_THAT(error.what(), Catch::Contains("tokenizer.json"));
      }
    }
}
