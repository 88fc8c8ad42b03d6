#include "common/text/bpe_tokenizer.h"

#include <time.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "tests/support/tiny_tokenizer.h"

using namespace dex;
using dex::test::TinyBpe;
using nlohmann::json;

namespace {

using Ids = std::vector<Token>;

std::unique_ptr<Tokenizer> made(const json& file) {
  std::string other;
  auto tokenizer = read_bpe_tokenizer(file.dump(), "here/tokenizer.json", other);
  REQUIRE(tokenizer);
  return tokenizer;
}

std::unique_ptr<Tokenizer> made(const TinyBpe& tiny = {}) {
  return made(test::tiny_bpe_json(tiny));
}

// The definition of BPE, step by step: merge the pair of lowest rank, leftmost first, until none is
// left.
std::vector<std::string> slow_pieces(const std::string& word, const test::Pairs& merges) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  for (;;) {
    std::size_t best_rank = merges.size(), best_at = 0;
    for (std::size_t at = 0; at + 1 < parts.size(); ++at)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank] == std::pair(parts[at], parts[at + 1])) best_rank = rank, best_at = at;
    if (best_rank == merges.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + std::ptrdiff_t(best_at) + 1);
  }
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  for (const Token id : tokenizer.encode(text)) pieces.push_back(tokenizer.decode(Ids{id}));
  return pieces;
}

// Of this thread: other work on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

void check_refused(const json& file, const std::string& seen, const std::string& supported) {
  std::string other;
  try {
    read_bpe_tokenizer(file.dump(), "here/tokenizer.json", other);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK_THAT(error.what(), Catch::Contains("here/tokenizer.json") && Catch::Contains(seen) &&
                                 Catch::Contains(supported));
  }
}

}  // namespace

TEST_CASE("merges are applied by rank, leftmost first") {
  const auto tokenizer = made();
  CHECK(pieces_of(*tokenizer, "the thing") ==
        std::vector<std::string>{"t", "he", " t", "h", "ing"});
  CHECK(pieces_of(*tokenizer, "hellow hell") == std::vector<std::string>{"hellow", " ", "hell"});
  CHECK(pieces_of(*tokenizer, "aaaaa") == std::vector<std::string>{"aaaa", "a"});
  // as the file writes it
  CHECK(tokenizer->text_of_id(tokenizer->encode(" the")[0]) == "\xC4\xA0the");
  CHECK(tokenizer->size() == 3 + 256 + int(test::tiny_merges().size()));
}

TEST_CASE("random words merge as the slow definition says") {
  std::mt19937 random(1);
  test::Pairs merges;
  std::vector<std::string> known{"a", "b", "c"};
  while (merges.size() < 60) {
    const auto& left = known[random() % known.size()];
    const auto& right = known[random() % known.size()];
    const std::pair merge(left, right);
    if (left.size() + right.size() > 9 ||
        std::find(merges.begin(), merges.end(), merge) != merges.end())
      continue;
    merges.push_back(merge);
    known.push_back(merge.first + merge.second);
  }
  TinyBpe tiny;
  tiny.merges = merges;
  const auto tokenizer = made(tiny);
  for (int i = 0; i < 3000; ++i) {
    std::string word(1 + random() % 40, 'a');
    for (char& letter : word) letter = "abc"[random() % 3];
    for (int again = 0; again < 2; ++again)  // the second time from what the first has learned
      REQUIRE(pieces_of(*tokenizer, word) == slow_pieces(word, merges));
  }
}

TEST_CASE("ignore_merges takes a whole word that the vocabulary has, whatever the merges say") {
  TinyBpe tiny;
  // "xyz" is a piece that its own merges never make
  tiny.merges = {{"x", "y"}, {"y", "z"}, {"x", "yz"}};
  CHECK(pieces_of(*made(tiny), "xyz") == std::vector<std::string>{"xy", "z"});
  tiny.ignore_merges = true;
  CHECK(pieces_of(*made(tiny), "xyz") == std::vector<std::string>{"xyz"});
}

TEST_CASE("both spellings of merges are the same tokenizer") {
  TinyBpe pairs;
  pairs.merges_as_pairs = true;
  const std::string text = "the hellow thing 12\n\n  aaaa";
  CHECK(made(pairs)->encode(text) == made()->encode(text));
}

TEST_CASE("special tokens in text stay text and come back as text") {
  for (const bool ignore_merges : {false, true}) {
    TinyBpe tiny;
    tiny.controls.push_back("<think>");
    tiny.ignore_merges = ignore_merges;
    const auto tokenizer = made(tiny);
    const std::string text = "a<|im_end|>\n<|im_start|>the<|endoftext|><think>";
    const Ids ids = tokenizer->encode(text);
    CHECK(*std::min_element(ids.begin(), ids.end()) > 3);
    CHECK(tokenizer->decode(ids) == text);
    for (const std::string& control : tiny.controls)
      CHECK(tokenizer->decode(tokenizer->encode(control)) == control);
  }
}

TEST_CASE("merges that would make a control token are not used") {
  TinyBpe tiny;
  tiny.controls = {"hell"};
  tiny.merges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}};
  CHECK(made(tiny)->encode("hell") != Ids{0});
  CHECK(pieces_of(*made(tiny), "hell") == std::vector<std::string>{"he", "ll"});
}

TEST_CASE("a raw prompt may ask for special tokens") {
  TinyBpe tiny;
  tiny.controls = {"<|im|>", "<|im|>x", "<think>"};
  const auto tokenizer = made(tiny);
  const Token t = tokenizer->encode("t")[0];
  CHECK(tokenizer->encode_with_special("t<|im|>t") == Ids{t, 0, t});
  CHECK(tokenizer->encode_with_special("<|im|>xt<think>") == Ids{1, t, 2});  // the longest one
  CHECK(tokenizer->encode_with_special("<|im") == tokenizer->encode("<|im"));
  CHECK(tokenizer->special_id("<|im|>x") == 1);
  CHECK_FALSE(tokenizer->special_id("<|im"));
  // a token that is added but not special is shown
  CHECK(tokenizer->decode(Ids{0, t, 2}) == "t<think>");
  CHECK(tokenizer->is_special(0));
  CHECK_FALSE(tokenizer->is_special(2));
}

TEST_CASE("NFC is applied where the file asks for it") {
  TinyBpe tiny;
  tiny.nfc = true;
  CHECK(made(tiny)->decode(made(tiny)->encode("e\xCC\x81")) == "\xC3\xA9");
  CHECK(made()->decode(made()->encode("e\xCC\x81")) == "e\xCC\x81");
}

TEST_CASE("every byte of valid text round-trips under each published split") {
  std::string text;
  for (int code = 1; code < 0x3000; ++code) {
    if (code < 0x80)
      text += char(code);
    else if (code < 0x800)
      text += {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
    else
      text +=
          {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 0x3F)), char(0x80 | (code & 0x3F))};
  }
  for (const char* split : {"qwen", "llama3", "smollm2"}) {
    TinyBpe tiny;
    tiny.split = split;
    const auto tokenizer = made(tiny);
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}

TEST_CASE("a byte that the vocabulary lacks is dropped, as the reference does") {
  json file = test::tiny_bpe_json();
  file["model"]["vocab"].erase(to_byte_alphabet("\x04"));
  const auto tokenizer = made(file);
  CHECK(tokenizer->decode(tokenizer->encode("a\x04"
                                            "a")) == "aa");
}

TEST_CASE("invalid UTF-8 is refused with its place") {
  CHECK_THROWS_WITH(made()->encode("abc\xFF"), Catch::Contains("offset 3"));
  CHECK_THROWS_WITH(made()->encode_with_special("\xE2\x82"), Catch::Contains("offset 0"));
}

TEST_CASE("ids outside the vocabulary decode to nothing") {
  CHECK(made()->decode(Ids{-1, 1 << 20, made()->encode("t")[0]}) == "t");
  CHECK(made()->text_of_id(1 << 20).empty());
  CHECK_FALSE(made()->is_special(-1));
}

TEST_CASE("the token before a raw prompt is read from the post-processor") {
  CHECK_FALSE(made()->bos_id());
  json file = test::tiny_bpe_json();
  file["post_processor"] = {{"type", "Sequence"},
                            {"processors",
                             {{{"type", "ByteLevel"}},
                              {{"type", "TemplateProcessing"},
                               {"single",
                                {{{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}},
                                 {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}}}}};
  CHECK(made(file)->bos_id() == 1);
}

TEST_CASE("what the file says and this reader does not know is refused by name") {
  const auto with = [](const std::string& path, json value) {
    json file = test::tiny_bpe_json();
    file[json::json_pointer(path)] = std::move(value);
    return file;
  };
  check_refused(with("/normalizer", {{"type", "Lowercase"}}), "Lowercase", "NFC");
  check_refused(with("/pre_tokenizer/pretokenizers/0/type", "Punctuation"), "Punctuation",
                "Digits");
  check_refused(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), "Removed", "Isolated");
  check_refused(with("/pre_tokenizer/pretokenizers/0/invert", true), "true", "false");
  check_refused(with("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}), "String",
                "Regex");
  check_refused(with("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), "add_prefix_space",
                "false");
  check_refused(with("/model/dropout", 0.1), "dropout", "null");
  check_refused(with("/model/byte_fallback", true), "byte_fallback", "false");
  check_refused(with("/model/end_of_word_suffix", "</w>"), "</w>", "null");
  check_refused(with("/added_tokens/0/lstrip", true), "lstrip", "false");
  check_refused(with("/model/merges/0", "abc"), "abc", "[");
  check_refused(with("/model/merges/0", "q qqq"), "qqq", "vocab");
  check_refused(with("/model/vocab/a", -5), "-5", "0 to");
  check_refused(with("/model/vocab/a", 50), "50", "both");
  json twice = test::tiny_bpe_json();
  twice["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
  check_refused(twice, "Digits", "nothing");
}

TEST_CASE("merges that are missing, cut or another tokenizer's are refused") {
  test::Pairs merges;
  std::vector<std::string> known{"a", "b", "c"};
  for (std::size_t i = 0; merges.size() < 300; ++i) {
    const std::string left = known[i / 3], right = known[i % 3];
    merges.emplace_back(left, right);
    known.push_back(left + right);
  }
  TinyBpe tiny;
  tiny.merges = merges;
  const json whole = test::tiny_bpe_json(tiny);
  const auto with_merges = [&](std::size_t count) {
    json file = whole;
    auto& list = file["model"]["merges"];
    list.erase(list.begin() + std::ptrdiff_t(count), list.end());
    return file;
  };
  made(whole);
  made(with_merges(298));  // a vocabulary may have an entry or two that nothing makes
  check_refused(with_merges(0), "has 0 merges", "one in 100");
  check_refused(with_merges(150), "has 150 merges", "one in 100");
  check_refused(with_merges(290), "has 290 merges", "one in 100");
  json others = whole;  // parts and results are known, but nothing leads to them
  others["model"]["merges"].erase(0);
  check_refused(others, "299 merges", "one in 100");
  json absent = whole;
  absent["model"].erase("merges");
  check_refused(absent, "model.merges is null", "a list");
  for (const bool pairs : {false, true}) {  // later lists stand in another order
    json reversed = whole;
    auto& list = reversed["model"]["merges"];
    std::reverse(list.begin(), list.end());
    if (pairs) list[0] = {"zz", "a"};
    if (pairs)
      check_refused(reversed, "model.merges[0]", "\"zz\" is not in model.vocab");
    else
      made(reversed);
  }
  for (unsigned seed = 0; seed < 20; ++seed) {  // whatever order they stand in
    json mixed = whole;
    auto& list = mixed["model"]["merges"];
    std::shuffle(list.begin(), list.end(), std::mt19937(seed));
    made(mixed);
    json cut = others;
    auto& rest = cut["model"]["merges"];
    std::shuffle(rest.begin(), rest.end(), std::mt19937(seed));
    check_refused(cut, "299 merges", "one in 100");
  }
  json bytes_only = test::tiny_bpe_json({.merges = {}});
  CHECK(made(bytes_only)->encode("ab").size() == 2);
}

TEST_CASE("a bad merge is named by its index, its text and what is wrong") {
  for (const auto& [merge, wrong] :
       {std::pair<json, std::string>{"q qqq", "\"qqq\" is not in model.vocab"},
        {"qqq q", "\"qqq\" is not in model.vocab"},
        {"q z", "\"qz\" is not in model.vocab"},
        {json{"q", "q", "q"}, "[\"a\", \"b\"]"},
        {5, "[\"a\", \"b\"]"}}) {
    json file = test::tiny_bpe_json();
    file["model"]["merges"][7] = merge;
    check_refused(file, "model.merges[7] is " + merge.dump(), wrong);
  }
}

TEST_CASE("ordinary added tokens are found in text, special ones and tags are not") {
  json file = test::tiny_bpe_json();
  const int next = made(file)->size();
  for (const char* text : {"\xC3\xBC", "    ", "<think>", "[TOOL]"})
    file["added_tokens"].push_back(
        {{"id", made(file)->size()}, {"content", text}, {"normalized", true}, {"special", false}});
  const auto tokenizer = made(file);
  const Token t = tokenizer->encode("t")[0];
  CHECK(tokenizer->encode("t\xC3\xBCt    t") == Ids{t, next, t, next + 1, t});
  CHECK(tokenizer->decode(Ids{t, next}) == "t\xC3\xBC");
  for (const std::string text : {"<think>", "[TOOL]", "<|im_end|>"}) {
    const Ids ids = tokenizer->encode(text);
    CHECK(ids == made()->encode(text));
    CHECK(tokenizer->decode(ids) == text);
    CHECK(tokenizer->encode_with_special(text) == Ids{*tokenizer->special_id(text)});
  }
  // nothing is found inside a control that stays text
  file["added_tokens"].push_back({{"id", next + 4}, {"content", "im"}, {"special", false}});
  CHECK(made(file)->encode("<|im_end|>") == made()->encode("<|im_end|>"));
  CHECK(made(file)->encode("im") == Ids{next + 4});
}

TEST_CASE("a control whose id contradicts the vocabulary is refused with both ids") {
  json file = test::tiny_bpe_json();
  file["model"]["vocab"]["<|twice|>"] = 300;
  file["added_tokens"].push_back({{"id", 300}, {"content", "<|twice|>"}, {"special", true}});
  CHECK_NOTHROW(made(file));
  file["added_tokens"].back()["id"] = 301;
  CHECK_THROWS_WITH(made(file), Catch::Contains("<|twice|>") && Catch::Contains("301") &&
                                    Catch::Contains("wanted 300"));
}

TEST_CASE("an ordinary added token takes white space and stands alone where its settings say so") {
  const auto with = [](const char* name) {
    json file = test::tiny_bpe_json();
    file["added_tokens"].push_back({{"id", 300}, {"content", "ow"}, {name, true}});
    return made(file);
  };
  const Token t = made()->encode("t")[0], space = made()->encode(" ")[0];
  CHECK(with("normalized")->encode("t ow t") == Ids{t, space, 300, made()->encode(" t")[0]});
  CHECK(with("lstrip")->encode("t \t ow t") == Ids{t, 300, made()->encode(" t")[0]});
  CHECK(with("rstrip")->encode("t ow \xE2\x80\x83t") == Ids{t, space, 300, t});
  CHECK(with("single_word")->encode("ow.") == Ids{300, made()->encode(".")[0]});
  for (const std::string text : {"tow", "owt", "_ow", "ow1", "ow\xCC\x81"})
    CHECK(with("single_word")->encode(text) == made()->encode(text));
}

TEST_CASE("an added token is found in normalized text if it says so, else in what was typed") {
  for (const bool normalized : {false, true}) {
    json file = test::tiny_bpe_json({.nfc = true});
    file["added_tokens"].push_back(
        {{"id", 300}, {"content", "e\xCC\x81"}, {"normalized", normalized}});
    const auto tokenizer = made(file);
    CHECK(tokenizer->encode("e\xCC\x81") == Ids{300});
    CHECK((tokenizer->encode("\xC3\xA9") == Ids{300}) == normalized);
  }
}

TEST_CASE("files beside tokenizer.json add tokens that it does not have") {
  AddedTokenFiles beside;
  beside.tokens = {{.text = "<|im_end|>", .id = 2},
                   {.text = "<|eot|>", .id = 400, .special = true},
                   {.text = "zz", .id = 401},
                   {.text = "<|other|>", .id = 5}};
  beside.roles = {"<|eot|>", "the", "<pad>"};
  json file = test::tiny_bpe_json();
  file["model"]["vocab"]["<pad>"] = 402;
  std::string other;
  const auto tokenizer = read_bpe_tokenizer(file.dump(), "here/tokenizer.json", other, beside);
  CHECK(tokenizer->size() == 403);
  CHECK(tokenizer->special_id("<|im_end|>") == 2);
  CHECK(tokenizer->special_id("<|eot|>") == 400);
  CHECK(tokenizer->is_special(400));
  CHECK(tokenizer->encode("zz") == Ids{401});
  CHECK_FALSE(tokenizer->special_id("<|other|>"));  // its id is another token's
  CHECK(tokenizer->text_of_id(5) == made()->text_of_id(5));
  CHECK(tokenizer->special_id("<pad>") == 402);  // a tag of the vocabulary that has a role
  CHECK(tokenizer->is_special(402));
  CHECK(tokenizer->encode(" the") == made()->encode(" the"));  // a word stays a word
}

TEST_CASE("a model that is not byte-level BPE is left to another reader") {
  json file = test::tiny_bpe_json();
  file["model"]["type"] = "Unigram";
  std::string other;
  CHECK_FALSE(read_bpe_tokenizer(file.dump(), "here", other));
  CHECK_THAT(other, Catch::Contains("Unigram"));
}

TEST_CASE("long runs need no deep stack, and twice the run takes about twice the time",
          "[timing]") {
  for (const char* split : {"qwen", "llama3", "smollm2"}) {
    TinyBpe tiny;
    tiny.split = split;
    const auto tokenizer = made(tiny);
    std::thread([&] {  // threads have small stacks
      for (const std::string unit :
           {"a", "\n", " ", "\xED\x95\x9C", "_", "7", "\xCC\x81", "aB3/"}) {
        const auto text_of = [&](int times) {
          std::string text;
          for (int i = 0; i < times; ++i) text += unit;
          return text;
        };
        const auto seconds = [&](int times) {
          const std::string text = text_of(times);
          double best = 1e9;
          for (int i = 0; i < 3; ++i) {
            const double start = cpu_seconds();
            const auto ids = tokenizer->encode(text);
            best = std::min(best, cpu_seconds() - start);
            CHECK(tokenizer->decode(ids) == text);
          }
          return best;
        };
        const double once = seconds(20000), four_times = seconds(80000);
        INFO(unit << " " << once << " s, four times as long " << four_times << " s");
        CHECK(four_times < 10 * once + 0.01);  // quadratic would be 16
      }
    })
        .join();
  }
}

TEST_CASE("threads that tokenize at once get the same ids") {
  const auto tokenizer = made();
  const std::string text = "the hellow thing inging aaaa hell 1212 the the\n\n";
  const Ids expected = made()->encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) wrong += tokenizer->encode(text) != expected;
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
