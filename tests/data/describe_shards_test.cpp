#include "data/describe_shards.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "data/manifest.h"
#include "data/prepare.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::TempDir;

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> ids;
    for (char byte : text) ids.push_back(10 + static_cast<unsigned char>(byte));
    return ids;
  }
  std::vector<Token> encode_with_special(std::string_view text) const override {
    return encode(text);
  }
  std::vector<Token> encode_continuation(std::string_view text) const override {
    return encode(text);
  }
  std::optional<Token> bos_id() const override { return std::nullopt; }
  std::string decode(std::span<const Token> ids, bool) const override {
    std::string text;
    for (Token id : ids) text += char(id - 10);
    return text;
  }
  int size() const override { return 266; }
  bool is_special(Token id) const override { return id < 10; }
  std::optional<Token> special_id(std::string_view) const override { return std::nullopt; }
  std::string text_of_id(Token id) const override { return fmt::format("<{}>", id); }
};

}  // namespace

TEST_CASE("masked text shows targets in brackets and controls by name") {
  const std::vector<Message> chat = {{"user", "Où?"}, {"assistant", "Ici 你"}};
  CHECK(masked_text(render_sample(chat, 100, test::render_bytes), ByteTokenizer()) ==
        "<1>Où?<4><2>⟦Ici 你<4>⟧");
  CHECK(masked_text(render_sample(chat, 9, test::render_bytes), ByteTokenizer()) ==
        "<1>Où?<4><2>⟦Ic⟧");
}

TEST_CASE("the totals of a split are the sums over its shards") {
  const SplitTotals totals = totals_of({{.samples = 3, .tokens = 50, .supervised = 20},
                                        {.samples = 4, .tokens = 7, .supervised = 1}});
  CHECK(totals.samples == 7);
  CHECK(totals.tokens == 57);
  CHECK(totals.supervised == 21);
  CHECK(totals.shards == 2);
  CHECK(totals_of({}).shards == 0);
}

TEST_CASE("a data set is described by its counts even where its tokenizer is gone") {
  const TempDir dir;
  PrepareOptions options;
  options.data =
      dir.write("chats.json", R"([{"id":"a","conversations":[{"from":"human","value":"q"},
                                               {"from":"gpt","value":"abc"}]}, {"id":"b"})");
  options.out = dir / "out";
  options.held_out = 0;
  options.allow_truncated = true;
  prepare(options, test::byte_renderer());
  const std::string text = describe_shards(options.out);
  CHECK_THAT(text, Catch::Contains("train     1 samples, 8 tokens, 4 supervised, 1 shards"));
  CHECK_THAT(text, Catch::Contains("chats.json") && Catch::Contains("cut: record 2"));
  CHECK_THAT(text, Catch::Contains("skipped.malformed") && Catch::Contains("no text shown"));
}
