#include "data/sample.h"

#include <catch2/catch.hpp>
#include <random>

#include "common/text/tokenizer.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/shared.h"

using namespace dex;
using dex::test::marked;
using dex::test::render_bytes;

namespace {

// A word is one token, whatever its length; every other byte is one. The last answer of a chat is
// framed differently.
RenderedChat render_words(std::span<const Message> messages) {
  RenderedChat chat;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    chat.tokens.push_back(messages[m].role == "user" ? 1 : 2);
    if (m + 1 == messages.size()) chat.tokens.push_back(3);
    Token word = 0;
    for (char c : messages[m].content) {
      if (std::isalpha(static_cast<unsigned char>(c))) {
        word = (word * 31 + c) % 50000 + 300;
        continue;
      }
      if (word) chat.tokens.push_back(std::exchange(word, 0));
      chat.tokens.push_back(10 + static_cast<unsigned char>(c));
    }
    if (word) chat.tokens.push_back(word);
    chat.tokens.push_back(4);
  }
  chat.supervised.assign(chat.tokens.size(), 1);
  return chat;
}

std::string random_text(std::mt19937& random, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += std::string(1 + random() % 40, char('a' + random() % 26));
    text += random() % 8 ? " " : random() % 2 ? "\n" : ". ";
  }
  return text.substr(0, bytes);
}

// Words, numbers, code and other scripts, joined by every kind of white space.
std::string prose(std::mt19937& random, std::size_t bytes) {
  const char* const pieces[] = {"the", "Exploration", "don't", "x1", "2024", "你好", "été",
                                "😀",  "f(x)",        "##",    "é",  "ſ",    "</s>"};
  const char* const gaps[] = {" ", " ", " ", "  ", "\n", "\n\n", " \n", "", ", ", "\t", "\u00a0"};
  std::string text;
  while (text.size() < bytes) {
    text += pieces[random() % std::size(pieces)];
    text += gaps[random() % std::size(gaps)];
  }
  return text + ".";
}

}  // namespace

TEST_CASE("targets are the answers and the tokens that end them, cut where the sample is cut") {
  const std::vector<Message> chat = {
      {"user", "q"}, {"assistant", "ab"}, {"user", "r"}, {"assistant", "c \n"}};
  CHECK(marked(render_sample(chat, 100, render_bytes)) == "#q|#[ab|]#r|#[c \n|]");
  CHECK(marked(render_sample(chat, 5, render_bytes)) == "#q|#[a]");
  CHECK(marked(render_sample(chat, 4, render_bytes)) == "#q|#");
  CHECK_FALSE(has_target(render_sample(chat, 4, render_bytes)));
  CHECK(has_target(render_sample(chat, 5, render_bytes)));
  CHECK_FALSE(has_target({}));
  CHECK_FALSE(has_target({{7, 8}, {1, 0}}));  // the first token has no row before it
}

TEST_CASE("ids are those of the whole text, however much of it was left out") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Message> chat;
    for (std::size_t m = 0; m < 2 + 2 * (random() % 4); ++m)
      chat.push_back({m % 2 ? "assistant" : "user",
                      random_text(random, random() % 3 ? random() % 200 : random() % 20000)});
    const std::size_t max_len = 2 + random() % 300;
    std::size_t most = 0;
    const Sample sample = render_sample(chat, max_len, [&](std::span<const Message> messages) {
      std::size_t bytes = 0;
      for (const Message& message : messages) bytes += message.content.size();
      most = std::max(most, bytes);
      return render_words(messages);
    });
    auto whole = render_words(chat).tokens;
    whole.resize(std::min(whole.size(), max_len));
    REQUIRE(sample.tokens == whole);
    REQUIRE(sample.supervised.size() == whole.size());
    REQUIRE(most < 100 * (max_len + 64));
  }
}

TEST_CASE("with real tokenizers, too, the ids are those of the whole text") {
  const auto tokenizers = test::shared("data/tokenizers");
  if (!tokenizers) return;
  const std::pair<const char*, const char*> kinds[] = {{"smollm2", "smollm2"},
                                                       {"qwen3", "qwen3"},
                                                       {"llama3", "llama3"},
                                                       {"llama2", "llama2"},
                                                       {"llama2", "vicuna"}};
  for (const auto& [model, name] : kinds) {
    const auto tokenizer = load_tokenizer(*tokenizers / model);
    const ChatTemplate chat_template = ChatTemplate::named(name);
    const Render render = [&](std::span<const Message> messages) {
      return chat_template.render(messages, *tokenizer, false);
    };
    std::mt19937 random(11);
    for (int round = 0; round < 30; ++round) {
      std::vector<Message> chat;
      if (random() % 3 == 0) chat.push_back({"system", prose(random, random() % 2 ? 50 : 5000)});
      for (std::size_t m = 0; m < 2 + 2 * (random() % 3); ++m)
        chat.push_back({m % 2 ? "assistant" : "user", prose(random, random() % 2 ? 50 : 5000)});
      const std::size_t max_len = 50 + random() % 200;
      RenderedChat whole = render(chat);
      whole.tokens.resize(std::min(whole.tokens.size(), max_len));
      whole.supervised.resize(whole.tokens.size());
      const Sample sample = render_sample(chat, max_len, render);
      CAPTURE(model, name, round);
      REQUIRE(sample.tokens == whole.tokens);
      REQUIRE(sample.supervised == whole.supervised);
    }
  }
}

TEST_CASE("a very long message is cut before it is tokenised") {
  const std::vector<Message> chat = {{"user", "q"},
                                     {"assistant", std::string(400000, 'x') + " end"},
                                     {"user", "again"},
                                     {"assistant", "yes"}};
  std::string long_text;
  for (int i = 0; i < 100000; ++i) long_text += "word ";
  std::size_t most = 0;
  const std::vector<Message> words = {{"user", "q"}, {"assistant", long_text}};
  render_sample(words, 64, [&](std::span<const Message> messages) {
    for (const Message& message : messages) most = std::max(most, message.content.size());
    return render_bytes(messages);
  });
  CHECK(most < 2000);
  CHECK(render_sample(chat, 64, render_bytes).tokens.size() ==
        64);  // no safe place to cut: the whole text is taken
}

TEST_CASE("a cut leaves reasoning whole and keeps what is no target") {
  std::string thoughts, words;
  for (int i = 0; i < 2000; ++i) thoughts += "think ", words += "word ";
  const std::vector<Message> chat = {{"user", "q"},
                                     {"assistant", words, thoughts},
                                     {"user", words},
                                     {"assistant", words, "", false}};
  for (const std::size_t max_len : {50u, 11990u, 12100u, 30000u}) {
    const Sample sample = render_sample(chat, max_len, render_bytes);
    RenderedChat whole = render_bytes(chat);
    whole.tokens.resize(std::min(whole.tokens.size(), max_len));
    whole.supervised.resize(whole.tokens.size());
    CAPTURE(max_len);
    CHECK(sample.tokens == whole.tokens);
    CHECK(sample.supervised == whole.supervised);
  }
}

TEST_CASE("an answer's text is not cut before its thoughts end") {
  for (const std::string tag : {"</think>", "</thinking>", "[/THINK]"}) {
    std::string content = "thoughts begin ";
    for (int i = 0; i < 5000; ++i) content += "think ";
    content += tag;
    for (int i = 0; i < 5000; ++i) content += " word";
    const std::vector<Message> chat = {{"user", "q"}, {"assistant", content}};
    bool cut = false;
    render_sample(chat, 64, [&](std::span<const Message> messages) {
      CHECK_THAT(messages[1].content, Catch::Contains(tag));
      cut = messages[1].content.size() < content.size();
      return render_bytes(messages);
    });
    CHECK(cut);
  }
}
