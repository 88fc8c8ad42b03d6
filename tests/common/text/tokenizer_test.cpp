#include "common/text/tokenizer.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/text/utf8.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tokenizer.h"

using namespace dex;
using nlohmann::json;

namespace {

using Ids = std::vector<Token>;

ExitCode code_of(const std::filesystem::path& dir, const std::string& first,
                 const std::string& second) {
  try {
    load_tokenizer(dir);
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains(first) && Catch::Contains(second));
    return error.code();
  }
  FAIL("accepted");
  return ExitCode::done;
}

// Every way to hand ids over in blocks of one to `most`, by one pattern of block sizes for each
// number.
void check_stream(const Tokenizer& tokenizer, const Ids& ids, bool continuation) {
  std::string whole = tokenizer.decode(ids, !continuation);
  whole = take_utf8(whole, true);
  for (unsigned cuts = 0; cuts < (1u << std::min<std::size_t>(ids.size(), 10)); ++cuts) {
    TextStream stream(tokenizer, continuation);
    std::string text;
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= ids.size(); ++end)
      if (end == ids.size() || (cuts >> (end % 10) & 1)) {
        text += stream.add(std::span(ids).subspan(begin, end - begin));
        begin = end;
      }
    text += stream.finish();
    REQUIRE(text == whole);
  }
}

// llama.cpp's vocabulary cases: texts between separator lines, ids of each on a line.
void check_cases(const std::filesystem::path& dir, const std::string& name) {
  const auto tokenizer = load_tokenizer(dir);
  std::string inputs = read_file(dir / (name + ".inp"));
  std::istringstream outputs(read_file(dir / (name + ".out")));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (std::string line; std::getline(outputs, line); ++count) {
    const std::size_t end = inputs.find(separator);
    REQUIRE(end != std::string::npos);
    std::istringstream numbers(line);
    const Ids expected{std::istream_iterator<Token>(numbers), {}};
    CHECK(tokenizer->encode(inputs.substr(0, end)) == expected);
    inputs.erase(0, end + separator.size());
  }
  CHECK(count == 46);
}

}  // namespace

TEST_CASE("tokenizer.json comes first when it is byte-level BPE, tokenizer.model otherwise") {
  test::TempDir dir;
  test::train_sentencepiece(dir);
  const auto pieces = load_tokenizer(dir.path());
  CHECK(pieces->digest() == sha256_of_file(dir / "tokenizer.model"));
  json file = test::tiny_bpe_json();
  dir.write("tokenizer.json", file.dump());
  CHECK(load_tokenizer(dir.path())->digest() == sha256_of_file(dir / "tokenizer.json"));
  file["pre_tokenizer"] = nullptr;
  file["model"]["byte_fallback"] = true;
  dir.write("tokenizer.json", file.dump());
  CHECK(load_tokenizer(dir.path())->digest() == pieces->digest());
}

TEST_CASE("a directory without a usable tokenizer is refused with what it holds") {
  test::TempDir dir;
  CHECK(code_of(dir / "nowhere", "nowhere", "no such directory") == ExitCode::usage);
  CHECK(code_of(dir.path(), "no tokenizer.json", "no tokenizer.model") == ExitCode::usage);
  json file = test::tiny_bpe_json();
  file["pre_tokenizer"] = {{"type", "Metaspace"}};
  dir.write("tokenizer.json", file.dump());
  CHECK(code_of(dir.path(), "Metaspace", "ByteLevel") == ExitCode::usage);
  dir.write("tokenizer.json", test::tiny_bpe_json().dump().substr(0, 500));
  CHECK(code_of(dir.path(), "tokenizer.json", "500 bytes") == ExitCode::io);
  dir.write("tokenizer.json", "# xet version 0\nfilesize = 1843427\n");
  CHECK(code_of(dir.path(), "tokenizer.json", "Xet pointer") == ExitCode::io);
}

TEST_CASE("files beside either make of tokenizer are read") {
  for (const bool pieces : {false, true}) {
    test::TempDir dir;
    if (pieces)
      test::train_sentencepiece(dir);
    else
      dir.write("tokenizer.json", test::tiny_bpe_json().dump());
    const int size = load_tokenizer(dir.path())->size();
    dir.write("added_tokens.json", json{{"<|a|>", size}, {"<|b|>", size + 1}}.dump());
    dir.write("tokenizer_config.json",
              json{{"eos_token", "<|a|>"},
                   {"added_tokens_decoder",
                    {{std::to_string(size + 1), {{"content", "<|c|>"}, {"special", true}}}}}}
                  .dump());
    const auto tokenizer = load_tokenizer(dir.path());
    CHECK(tokenizer->size() == size + 2);
    CHECK(tokenizer->special_id("<|a|>") == size);
    CHECK(tokenizer->is_special(size));
    CHECK(tokenizer->special_id("<|c|>") == size + 1);  // the decoder holds
    CHECK_FALSE(tokenizer->special_id("<|b|>"));
    dir.write("tokenizer_config.json", R"({"added_tokens_decoder": {"7x": {"content": "<|c|>"}}})");
    CHECK(code_of(dir.path(), "tokenizer_config.json", "7x") == ExitCode::usage);
  }
}

TEST_CASE("pointers and web pages in place of tokenizers are named as such") {
  const auto negative = test::shared("data/negative");
  if (!negative) return;
  test::TempDir dir;
  const auto with = [&](const char* from, const char* to) {
    dir.write(to, read_file(*negative / from));
    return dir.path();
  };
  CHECK(code_of(with("html-page-tokenizer.model", "tokenizer.model"), "tokenizer.model",
                "web page") == ExitCode::io);
  CHECK(code_of(with("xet-pointer-tokenizer.model", "tokenizer.model"), "tokenizer.model",
                "Xet pointer") == ExitCode::io);
  CHECK(code_of(with("xet-pointer-tokenizer.json", "tokenizer.json"), "tokenizer.json",
                "Xet pointer") == ExitCode::io);
}

TEST_CASE("a stream equals the whole text for every cut") {
  const auto bpe = [] {
    test::TempDir dir;
    dir.write("tokenizer.json", test::tiny_bpe_json().dump());
    return load_tokenizer(dir.path());
  }();
  const auto pieces = [] {
    test::TempDir dir;
    test::train_sentencepiece(dir);
    return load_tokenizer(dir.path());
  }();
  for (const bool continuation : {false, true})
    for (const Tokenizer* tokenizer : {bpe.get(), pieces.get()}) {
      for (const std::string text :
           {"the answer", " \xF0\x9F\x98\x80 the", "  a", "\xED\x95\x9C\n", ""})
        check_stream(*tokenizer, tokenizer->encode(text), continuation);
      Ids broken = tokenizer->encode("\xF0\x9F\x98\x80\xED\x95\x9C");
      broken.erase(broken.begin() + 3);  // a character that never ends well
      broken.push_back(1);               // and a control
      check_stream(*tokenizer, broken, continuation);
      broken.pop_back();
      broken.pop_back();
      check_stream(*tokenizer, broken, continuation);
    }
}

TEST_CASE(
    "the first token of a continuation keeps its space, a control before the text costs none") {
  test::TempDir dir;
  test::train_sentencepiece(dir);
  const auto tokenizer = load_tokenizer(dir.path());
  const Ids answer = tokenizer->encode("answer");
  TextStream whole(*tokenizer, false), continued(*tokenizer, true);
  CHECK(whole.add(Ids{1}) == "");
  CHECK(whole.add(answer) == "answer");
  CHECK(whole.add(answer) == " answer");
  CHECK(continued.add(answer) == " answer");
}

TEST_CASE("the stream of published pieces is the expected one", "[shared]") {
  const auto folder = test::shared("cases/d-t3");
  if (!folder) return;
  const auto tokenizer = load_tokenizer(*folder);
  const json expected = json::parse(read_file(*folder / "expected.json"));
  for (const json& row : expected["rows"]) {
    const auto ids = row["ids"].get<Ids>();
    CHECK(tokenizer->encode(row["text"].get<std::string>()) == ids);
    CHECK(tokenizer->decode(ids) == row["whole"].get<std::string>());
    TextStream stream(*tokenizer, false);
    std::vector<std::string> parts;
    for (const Token id : ids) parts.push_back(stream.add(Ids{id}));
    CHECK(json(parts) == row["stream"]);
    CHECK(stream.finish().empty());
    check_stream(*tokenizer, ids, false);
  }
  const json& next = expected["continuation"];
  TextStream stream(*tokenizer, true);
  CHECK(stream.add(next["completion_ids"].get<Ids>()) ==
        next["completion_text"].get<std::string>());
}

TEST_CASE("llama.cpp's vocabulary cases have the expected ids", "[shared]") {
  const auto folder = test::shared("data/tokenizers");
  if (!folder) return;
  check_cases(*folder / "llama2", "llamacpp-llama-spm");
  check_cases(*folder / "llama3", "llamacpp-llama-bpe");
  check_cases(*folder / "qwen3", "llamacpp-qwen2");
}

TEST_CASE("published tokenizers have their sizes and control tokens", "[shared]") {
  const auto folder = test::shared("data/tokenizers");
  if (!folder) return;
  const auto check = [&](const char* name, int size, Ids hello, const char* control, Token id,
                         std::optional<Token> begin) {
    const auto tokenizer = load_tokenizer(*folder / name);
    CHECK(tokenizer->size() == size);
    CHECK(tokenizer->encode("Hello world") == hello);
    CHECK(tokenizer->special_id(control) == id);
    CHECK(tokenizer->is_special(id));
    CHECK(tokenizer->bos_id() == begin);
  };
  check("llama2", 32000, {15043, 3186}, "</s>", 2, 1);
  check("codellama", 32016, {15043, 3186}, "</s>", 2, 1);
  check("llama3", 128256, {9906, 1917}, "<|eot_id|>", 128009, 128000);
  check("qwen3", 151669, {9707, 1879}, "<|im_end|>", 151645, {});
  check("smollm2", 49152, {19556, 905}, "<|im_end|>", 2, {});
}

TEST_CASE("long runs in messages have the expected ids, in threads too", "[shared]") {
  const auto cases = test::shared("cases");
  if (!cases) return;
  const json expected = json::parse(read_file(*cases / "d-t1-expected.json"))["by_tokenizer"];
  const json records = json::parse(read_file(*cases / "d-t1-long-runs.json"));
  for (const char* name : {"qwen", "llama3", "smol"}) {
    const auto tokenizer = load_tokenizer(*cases / (std::string("mini-tok-") + name));
    std::vector<Ids> all(records.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < records.size(); ++i)
      threads.emplace_back([&, i] {
        all[i] = tokenizer->encode(records[i]["conversations"][0]["value"].get<std::string>());
      });
    for (auto& thread : threads) thread.join();
    for (std::size_t i = 0; i < records.size(); ++i) {
      const json& wanted = expected[name][records[i]["id"].get<std::string>().substr(4)];
      CHECK(all[i].size() == wanted["n_ids"].get<std::size_t>());
      CHECK(Ids(all[i].begin(), all[i].begin() + 8) == wanted["first8"].get<Ids>());
      CHECK(Ids(all[i].end() - 4, all[i].end()) == wanted["last4"].get<Ids>());
    }
  }
}

TEST_CASE("special tokens typed by users have the ids of plain text", "[shared]") {
  const auto cases = test::shared("cases");
  if (!cases) return;
  const auto tokenizer = load_tokenizer(*cases / "mini-tok-qwen");
  const json expected = json::parse(read_file(*cases / "d-t2-expected.json"));
  for (const auto& [text, ids] : expected.at("content_ids").items()) {
    CHECK(tokenizer->encode(text) == ids.get<Ids>());
    CHECK(tokenizer->decode(ids.get<Ids>()) == text);
  }
}
