// Lines that nobody meant to write: every one is a row, and none is taken with a field that is
// neither used nor harmless.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "decode/jobs/job.h"
#include "tests/support/scale.h"

namespace dex {
namespace {

using Json = nlohmann::json;

class Lines {
 public:
  explicit Lines(unsigned seed) : engine_(seed) {}

  std::string next() {
    std::string line = line_of_fields().dump(-1, ' ', false, Json::error_handler_t::replace);
    for (int changes = pick(3) == 0 ? 1 + pick(4) : 0; changes > 0; --changes) change(line);
    std::erase(line, '\n');
    return line;
  }
  int pick(int below) { return int(engine_() % unsigned(below)); }

 private:
  Json line_of_fields() {
    Json body = some_fields(pick(5));
    if (pick(8) != 0) body["messages"] = conversation();
    if (pick(8) == 0) body["prompt"] = pick(2) == 0 ? Json("go on") : value();
    if (pick(3) == 0) return body;
    Json line = {{"body", pick(30) == 0 ? value() : body}};
    if (pick(2) == 0) line["custom_id"] = pick(5) == 0 ? value() : Json(std::to_string(pick(1000)));
    if (pick(2) == 0) line["url"] = pick(5) == 0 ? value() : Json("/v1/chat/completions");
    if (pick(2) == 0) line["method"] = pick(5) == 0 ? value() : Json("POST");
    if (pick(10) == 0) line[name()] = value();
    return line;
  }

  Json conversation() {
    Json list = Json::array();
    for (int i = 0, count = 1 + pick(3); i < count; ++i) {
      Json message = {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "text"}};
      if (pick(6) == 0) message["content"] = value();
      if (pick(10) == 0) message[name()] = value();
      list.push_back(message);
    }
    return list;
  }

  Json some_fields(int count) {
    Json body = Json::object();
    while (count-- > 0) body[name()] = value();
    return body;
  }

  std::string name() {
    static const std::vector<std::string> names{
        "temperature", "top_p",      "top_k",         "seed",           "n",
        "stop",        "logit_bias", "tools",         "tool_choice",    "response_format",
        "stream",      "logprobs",   "echo",          "suffix",         "max_tokens",
        "user",        "metadata",   "guided_json",   "bad_words",      "max_completion_tokens",
        "name",        "tool_calls", "chat_template", "model",          "presence_penalty",
        "documents",   "min_tokens", "created",       "weight",         "add_generation_prompt",
        "unheard_of",  "custom_id",  "reasoning",     "stop_token_ids", "use_beam_search"};
    return names[pick(int(names.size()))];
  }

  Json value(int depth = 0) {
    switch (pick(depth > 3 ? 12 : 16)) {
      case 0:
        return nullptr;
      case 1:
        return true;
      case 2:
        return false;
      case 3:
        return 0;
      case 4:
        return 1;
      case 5:
        return -1;
      case 6:
        return 1e300;
      case 7:
        return 0.5;
      case 8:
        return "";
      case 9:
        return "text";
      case 10:
        return Json::array();
      case 11:
        return Json::object();
      case 12:
        return Json::array({value(depth + 1)});
      case 13:
        return {{"type", "text"}};
      case 14:
        return Json{{name(), value(depth + 1)}};
      default:
        return std::int64_t(engine_()) << pick(40);
    }
  }

  void change(std::string& line) {
    static const std::vector<std::string> pieces{"\"",
                                                 "\\",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 ":",
                                                 "NaN",
                                                 "1e999",
                                                 "\\ud800",
                                                 "\xFF",
                                                 "\xE2\x80\xA8",
                                                 std::string(1, '\0'),
                                                 "\r",
                                                 "null",
                                                 std::string(300, '[')};
    const std::size_t at = line.empty() ? 0 : pick(int(line.size()));
    switch (pick(4)) {
      case 0:
        line.resize(at);
        break;
      case 1:
        line.erase(at, 1 + pick(5));
        break;
      case 2:
        line.insert(at, pieces[pick(int(pieces.size()))]);
        break;
      default:
        if (!line.empty()) line[at] = char(engine_());
    }
  }

  std::mt19937 engine_;
};

// Written down apart from the program: what a taken line may hold.
const std::set<std::string> kKnown{"custom_id",
                                   "method",
                                   "url",
                                   "created",
                                   "body",
                                   "messages",
                                   "prompt",
                                   "max_tokens",
                                   "max_completion_tokens",
                                   "temperature",
                                   "top_p",
                                   "top_k",
                                   "seed",
                                   "n",
                                   "stop",
                                   "logit_bias",
                                   "tools",
                                   "tool_choice",
                                   "response_format",
                                   "stream",
                                   "logprobs",
                                   "echo",
                                   "suffix",
                                   "user",
                                   "metadata",
                                   "bad_words",
                                   "model",
                                   "documents",
                                   "min_tokens",
                                   "presence_penalty",
                                   "add_generation_prompt",
                                   "stop_token_ids",
                                   "use_beam_search"};
const std::set<std::string> kMessage{"role", "content", "reasoning", "tool_calls"};

void check_fields(const Json& object, const std::set<std::string>& known) {
  for (const auto& [name, value] : object.items()) {
    CAPTURE(name, value.dump());
    CHECK((value.is_null() || known.count(name) == 1));
  }
}

void check_taken(const std::string& line) {
  CAPTURE(line);
  const Json object = Json::parse(line);
  check_fields(object, kKnown);
  const Json& body = object.contains("body") ? object.at("body") : object;
  check_fields(body, kKnown);
  const auto is_off = [&](const char* name, const Json& off) {
    return body.value(name, Json()).is_null() || body.at(name) == off;
  };
  CHECK(is_off("stop", Json::array()));
  CHECK(is_off("tools", Json::array()));
  CHECK(is_off("n", 1));
  CHECK(is_off("stream", false));
  CHECK(is_off("use_beam_search", false));
  CHECK(is_off("response_format", Json{{"type", "text"}}));
  if (body.contains("messages") && body.at("messages").is_array())
    for (const Json& message : body.at("messages")) check_fields(message, kMessage);
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

TEST_CASE("whatever a line holds, it is one row, and what is taken is known") {
  Lines lines(11);
  const int files = test::times(40, 1000);
  int taken = 0, refused = 0;
  for (int file = 0; file < files; ++file) {
    std::vector<std::string> written{""};
    std::string text;
    for (int i = 0; i < 10; ++i) {
      written.push_back(lines.next());
      text += written.back() + "\n";
    }
    std::vector<int> numbers, wanted;
    for (int i = 1; i <= 10; ++i)
      if (!is_blank(written[i])) wanted.push_back(i);
    for (const JobLine& line : parse_jobs(text)) {
      numbers.push_back(line.number);
      if (std::holds_alternative<Job>(line.content)) {
        ++taken;
        check_taken(written[line.number]);
      } else {
        ++refused;
        CHECK_FALSE(std::get<BadJob>(line.content).reason.empty());
      }
    }
    CHECK(numbers == wanted);
  }
  CHECK(taken > files / 2);
  CHECK(refused > files);
}

}  // namespace dex
