#include "common/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/text/sentencepiece_settings.h"
#include "tests/support/tiny_sentencepiece.h"

using namespace dex;

namespace {

using Ids = std::vector<Token>;

struct Trained {
  explicit Trained(const std::string& options = "") {
    test::train_sentencepiece(dir, options);
    REQUIRE(library.Load((dir / "tokenizer.model").string()).ok());
    tokenizer = read_sentencepiece_tokenizer(dir / "tokenizer.model");
  }
  Ids by_library(const std::string& text) const {
    Ids ids;
    REQUIRE(library.Encode(text, &ids).ok());
    return ids;
  }
  test::TempDir dir;
  sentencepiece::SentencePieceProcessor library;
  std::unique_ptr<Tokenizer> tokenizer;
};

const Trained& trained() {
  static const Trained once;
  return once;
}

std::vector<std::string> random_texts(int count) {
  const char* const parts[] = {"the",
                               " ",
                               "  ",
                               "   ",
                               "answer",
                               "\n",
                               "\t",
                               "hello world",
                               "\xE2\x96\x81",
                               "<s>",
                               "</s>",
                               "<0x0A>",
                               "\xED\x95\x9C",
                               "\xF0\x9F\x98\x80",
                               "<unk>",
                               "a",
                               "zq",
                               "12",
                               ".",
                               "(x):",
                               "\xC3\xA9",
                               "\x01"};
  std::mt19937 random(3);
  std::vector<std::string> texts{"", " ", "  ", "\xE2\x96\x81", "\xE2\x96\x81 a", "a "};
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (unsigned n = random() % 12; n > 0; --n) text += parts[random() % std::size(parts)];
    texts.push_back(text);
  }
  return texts;
}

}  // namespace

TEST_CASE("ids are the library's, word by word and whole") {
  for (const std::string& text : random_texts(3000))
    REQUIRE(trained().tokenizer->encode(text) == trained().by_library(text));
}

TEST_CASE("models that normalize are tokenized as the library does, too") {
  for (const char* options :
       {"--remove_extra_whitespaces=true", "--normalization_rule_name=nmt_nfkc",
        "--add_dummy_prefix=false", "--treat_whitespace_as_suffix=true",
        "--model_type=unigram --vocab_size=330"}) {
    const Trained other(options);
    for (const std::string& text : random_texts(300))
      REQUIRE(other.tokenizer->encode(text) == other.by_library(text));
  }
}

TEST_CASE("settings are read from the model file") {
  const auto of = [](const std::string& options) {
    const Trained model(options);
    return read_sentencepiece_settings(read_file(model.dir / "tokenizer.model"));
  };
  CHECK(of("").dummy_prefix);
  CHECK_FALSE(of("").strips_spaces);
  CHECK(of("").words_are_apart);
  CHECK_FALSE(of("--add_dummy_prefix=false").dummy_prefix);
  CHECK(of("--remove_extra_whitespaces=true").strips_spaces);
  CHECK_FALSE(of("--remove_extra_whitespaces=true").words_are_apart);
  CHECK_FALSE(of("--normalization_rule_name=nmt_nfkc").words_are_apart);
  CHECK_FALSE(of("--model_type=unigram --vocab_size=330").words_are_apart);
  CHECK_FALSE(of("--byte_fallback=false").words_are_apart);
}

TEST_CASE("control pieces and byte pieces never come from text") {
  const Tokenizer& tokenizer = *trained().tokenizer;
  for (const std::string text : {"<s>", "</s>", "<unk>", "<0x0A>", "a</s><s>b"}) {
    const Ids ids = tokenizer.encode(text);
    for (const Token id : ids) {
      CHECK_FALSE(tokenizer.is_special(id));
      CHECK(tokenizer.text_of_id(id) != "<unk>");
      CHECK(tokenizer.text_of_id(id) != "<0x0A>");
    }
    CHECK(tokenizer.decode(ids) == text);
  }
}

TEST_CASE("a raw prompt may ask for control pieces") {
  const Tokenizer& tokenizer = *trained().tokenizer;
  Ids expected{1};
  for (const Token id : tokenizer.encode("hello")) expected.push_back(id);
  expected.push_back(2);
  CHECK(tokenizer.encode_with_special("<s>hello</s>") == expected);
  CHECK(tokenizer.special_id("<s>") == 1);
  CHECK(tokenizer.special_id("</s>") == 2);
  CHECK_FALSE(tokenizer.special_id("<unk>"));
  CHECK(tokenizer.bos_id() == 1);
}

TEST_CASE("decoding gives the text back, its own leading spaces included") {
  for (const std::string& text : random_texts(500)) {
    // U+2581 is a space to SentencePiece
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;
    CHECK(trained().tokenizer->decode(trained().tokenizer->encode(text)) == text);
  }
}

TEST_CASE("only the one dummy space of a whole text is dropped") {
  const Tokenizer& tokenizer = *trained().tokenizer;
  const Ids ids = tokenizer.encode("the answer");
  CHECK(tokenizer.decode(ids) == "the answer");
  CHECK(tokenizer.decode(ids, false) == " the answer");
  Ids with_begin{1};
  with_begin.insert(with_begin.end(), ids.begin(), ids.end());
  CHECK(tokenizer.decode(with_begin) == "the answer");
  CHECK(tokenizer.decode(tokenizer.encode("  the")) == "  the");
}

TEST_CASE("text that goes on gets no dummy space") {
  for (const char* options : {"", "--remove_extra_whitespaces=true"}) {
    const Trained model(options);
    const auto joined = [&](const std::string& first, const std::string& second) {
      Ids ids = model.tokenizer->encode(first);
      for (const Token id : model.tokenizer->encode_continuation(second)) ids.push_back(id);
      return model.tokenizer->decode(ids);
    };
    CHECK(joined("the", " answer is") == "the answer is");
    CHECK(joined("the", "answer") == "theanswer");
    CHECK(model.tokenizer->encode_continuation("").empty());
  }
}

TEST_CASE("ids past the model's pieces come from the tokenizer configuration beside it") {
  test::TempDir dir;
  test::train_sentencepiece(dir);
  const int size = trained().tokenizer->size();
  dir.write(
      "tokenizer_config.json",
      R"({"add_bos_token": false, "added_tokens_decoder": {"1": {"content": "<s>", "special": true}, ")" +
          std::to_string(size + 1) + R"(": {"content": "<|im_end|>", "special": true}}})");
  const auto tokenizer = read_sentencepiece_tokenizer(dir / "tokenizer.model");
  CHECK(tokenizer->size() == size + 2);
  CHECK(tokenizer->special_id("<|im_end|>") == size + 1);
  CHECK(tokenizer->is_special(size + 1));
  CHECK(tokenizer->decode(Ids{size, size + 1}).empty());
  CHECK_FALSE(tokenizer->bos_id());
  CHECK(tokenizer->encode("<|im_end|>") == trained().tokenizer->encode("<|im_end|>"));
}

TEST_CASE("user-defined pieces are found in text as the library does, but tags stay text") {
  const Trained model("--user_defined_symbols=<|im_start|>,[TOOL],zq,hello\xE2\x96\x81world");
  const Tokenizer& tokenizer = *model.tokenizer;
  const Token start = *tokenizer.special_id("<|im_start|>"), tool = *tokenizer.special_id("[TOOL]");
  for (std::string text : random_texts(500))
    CHECK(tokenizer.encode(text) == model.by_library(text));
  for (const std::string text : {"a<|im_start|>b", "[TOOL]", "the<|im_start|>zq hello world"}) {
    const Ids ids = tokenizer.encode(text), found = model.by_library(text);
    CHECK(std::count(ids.begin(), ids.end(), start) + std::count(ids.begin(), ids.end(), tool) ==
          0);
    CHECK(std::count(found.begin(), found.end(), start) +
              std::count(found.begin(), found.end(), tool) ==
          1);
    CHECK(tokenizer.decode(ids) == text);
  }
  const Ids asked = tokenizer.encode_with_special("a<|im_start|>b");
  CHECK(std::count(asked.begin(), asked.end(), start) == 1);
  CHECK_FALSE(tokenizer.is_special(start));  // shown, as the library shows it
  CHECK(tokenizer.decode(Ids{start}) == "<|im_start|>");
}

TEST_CASE("added_tokens.json is read: ids, and what has a role is special") {
  test::TempDir dir;
  test::train_sentencepiece(dir);
  const int size = trained().tokenizer->size();
  dir.write(
      "added_tokens.json",
      nlohmann::json{{"<|im_end|>", size}, {"<|im_start|>", size + 1}, {"ZZ", size + 2}, {"<s>", 1}}
          .dump());
  dir.write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  const auto tokenizer = read_sentencepiece_tokenizer(dir / "tokenizer.model");
  CHECK(tokenizer->size() == size + 3);
  CHECK(tokenizer->special_id("<|im_end|>") == size);
  CHECK(tokenizer->is_special(size));
  CHECK(tokenizer->special_id("<|im_start|>") == size + 1);
  CHECK_FALSE(tokenizer->is_special(size + 1));
  CHECK(tokenizer->encode("<|im_end|><|im_start|>") ==
        trained().tokenizer->encode("<|im_end|><|im_start|>"));
  CHECK(tokenizer->encode("ZZ") == Ids{size + 2});  // a word is found in text
  CHECK(tokenizer->decode(Ids{size + 2}) == "ZZ");
  for (const auto& [bytes, wrong] :
       std::vector<std::pair<std::string, std::string>>{{R"({"<x>": -1})", "<x>"},
                                                        {R"({"<x>": "1"})", "<x>"},
                                                        {R"({"": 500})", "wanted"},
                                                        {R"({"<x>": 99999999999})", "<x>"},
                                                        {"[1]", "added_tokens.json"}}) {
    dir.write("added_tokens.json", bytes);
    CHECK_THROWS_WITH(read_sentencepiece_tokenizer(dir / "tokenizer.model"),
                      Catch::Contains("added_tokens.json") && Catch::Contains(wrong));
  }
}

TEST_CASE("files that are no SentencePiece model are refused with a hint") {
  test::TempDir dir;
  const auto check = [&](const std::string& bytes, const std::string& hint) {
    const auto path = dir.write("tokenizer.model", bytes);
    CHECK_THROWS_WITH(read_sentencepiece_tokenizer(path),
                      Catch::Contains(path.string()) && Catch::Contains(hint));
  };
  check("<!doctype html><html>", "web page");
  check("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs pointer");
  check("IQ== 0\nIg== 1\n", "tokenizer.json");
  check("", "0 bytes");
  const std::string whole = read_file(trained().dir / "tokenizer.model");
  check(whole.substr(0, whole.size() / 2), "bytes");
}

TEST_CASE("invalid UTF-8 is refused") {
  CHECK_THROWS_WITH(trained().tokenizer->encode("ab\xC0"), Catch::Contains("offset 2"));
}

TEST_CASE("threads that tokenize with one SentencePiece model get the same ids") {
  const auto texts = random_texts(200);
  const auto fresh = read_sentencepiece_tokenizer(trained().dir / "tokenizer.model");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (const auto& text : texts)
        wrong += fresh->encode(text) != trained().tokenizer->encode(text);
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
