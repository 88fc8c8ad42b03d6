// Damaged tokenizer files: loaded or refused with an Error, never a crash.
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/text/tokenizer.h"
#include "tests/support/altered.h"
#include "tests/support/scale.h"
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

TEST_CASE("altered tokenizer files, one at a time among others, are loaded or refused") {
  test::TempDir trained;
  test::train_sentencepiece(trained);
  nlohmann::json bpe = test::tiny_bpe_json({.nfc = true});
  bpe["added_tokens"].push_back({{"id", 500}, {"content", "\xC3\xBC"}, {"rstrip", true}});
  std::map<std::string, std::string> files = {
      {"tokenizer.json", bpe.dump()},
      {"added_tokens.json", R"({"<|eot|>": 600, "ZZ": 601})"},
      {"special_tokens_map.json", R"({"eos_token": "<|eot|>", "pad_token": {"content": "ZZ"}})"},
      {"tokenizer_config.json",
       R"({"add_bos_token": true, "added_tokens_decoder": {"602": {"content": "the", "single_word": true}}})"}};
  const std::string pieces = read_file(trained / "tokenizer.model");
  std::mt19937 random(12);
  for (int i = 0; i < test::times(600, 10000); ++i) {
    test::TempDir dir;
    auto copy = files;
    if (i % 2) copy.erase("tokenizer.json"), copy["tokenizer.model"] = pieces;
    auto chosen = std::next(copy.begin(), std::ptrdiff_t(random() % copy.size()));
    chosen->second = test::altered(chosen->second, random);
    for (const auto& [name, bytes] : copy) dir.write(name, bytes);
    try {
      const auto tokenizer = load_tokenizer(dir.path());
      const std::string text = "the ZZ\xC3\xBC  hellow <|eot|>\n";
      tokenizer->decode(tokenizer->encode(text));
      tokenizer->decode(tokenizer->encode_with_special(text));
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Catch::Contains(chosen->first) || Catch::Contains("tokenizer."));
      CHECK((error.code() == ExitCode::io || error.code() == ExitCode::usage));
    }
  }
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
