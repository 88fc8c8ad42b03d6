#include "data/parse_record.h"

#include <catch2/catch.hpp>

using namespace dex;

namespace {

Conversation parse(const std::string& text) { return parse_record({0, 0, text}); }
std::string skip_of(const std::string& text) { return name_of(parse(text).skip); }

// A record of a question and an answer, with more fields of the record and of the answer.
std::string record(const std::string& beside, const std::string& of_answer,
                   const std::string& answer = R"("yes")") {
  return R"({"id":"r",)" + beside + R"("conversations":[{"from":"human","value":"q"},{)" +
         of_answer + R"("from":"gpt","value":)" + answer + "}]}";
}

}  // namespace

TEST_CASE("both key spellings, further names of the list and odd ids are read") {
  CHECK(parse(R"({"id":"m","messages":[{"role":"user","content":"q"}]})").turns.at(0).text == "q");
  CHECK(parse(R"({"id":"n","items":[{"from":"human","value":"q"}]})").turns.at(0).role == "human");
  CHECK(parse(R"({"id":12,"conversations":[]})").id == "12");
  CHECK(parse(R"({"conversations":[]})").id.empty());
  CHECK(parse(R"({"id":"x","conversations":[{"from":"gpt","value":"\ud83d\ude00\u4f60"}]})")
            .turns.at(0)
            .text == "😀你");
}

TEST_CASE("JSON of another form is marked malformed") {
  for (const char* text : {"1", "null", "\"text\"", "[]", "{}", R"({"conversations":{}})",
                           R"({"conversations":["x"]})", R"({"conversations":[{"from":"human"}]})",
                           R"({"conversations":[{"from":1,"value":"x"}]})",
                           R"({"conversations":[{"from":"human","value":null}]})",
                           R"({"conversations":[{"from":"human","value":7}]})"}) {
    CAPTURE(text);
    CHECK(skip_of(text) == "malformed");
    CHECK_FALSE(parse(text).problem.empty());
  }
  CHECK(skip_of(R"({"conversations":[]})") == "none");
}

TEST_CASE("what a record says twice it says once, or it is malformed") {
  for (const std::string& text :
       {record("", R"("value":"no",)"), record(R"("id":"s",)", ""),
        record(R"("meta":{"a":1,"b":{"a":2},"a":1},)", ""),
        record(R"("system":"A","system":"B",)", ""), record("", R"("content":"no",)"),
        record("", R"("role":"user",)")}) {
    CAPTURE(text);
    CHECK(skip_of(text) == "malformed");
  }
  CHECK(skip_of(record(R"("meta":{"id":1,"b":[{"id":2},{"id":2}]},)", R"("content":"yes",)")) ==
        "none");
  CHECK(skip_of(record("", R"("role":"assistant",)")) == "none");
  CHECK(parse(R"({"conversations":null,"messages":[{"from":null,"role":"user","content":"q"}]})")
            .turns.at(0)
            .text == "q");
}

TEST_CASE("text that nobody can read as JSON costs its record, which says what and keeps its id") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"id":"r","score":NaN})", "invalid literal"},
      {R"({"id":"r","score":-Infinity})", "'-I'"},
      {R"({"id":"r","score":1e999})", "1e999"},
      {R"({"id":"r","score":-2E+4000})", "-2E+4000"},
      {R"({"id":"r","score":01})", "number literal"},
      {R"({"id":"r","conversations":[{"from":"gpt","value":"\x41"}]})", "backslash"},
      {R"({"id":"r","conversations":[{"from":"gpt","value":"\u12"}]})", "4 hex digits"},
      {R"({"id":"r","conversations":[{"from":"gpt","value":"half \ud83d pair"}]})", "surrogate"},
      {"{\"id\":\"r\",\"text\":\"caf\xe9\"}", "UTF-8"},
      {"{\"id\":\"r\",\"text\":\"\xc0\xaf\"}", "UTF-8"},
      {"{\"id\":\"r\",\"text\":\"a\nb\"}", "control character"},
      {R"({"id":"r","list":[1}])", "'}'"},
      {R"({"id":"r",})", "column 11"}};
  for (const auto& [text, word] : cases) {
    CAPTURE(text);
    const Conversation conversation = parse(text);
    CHECK(conversation.skip == Skip::not_json);
    CHECK(conversation.id == "r");
    CHECK_THAT(conversation.problem, Catch::Contains(word));
  }
  CHECK(parse(R"({"score":NaN,"id":"r"})").id.empty());
  CHECK(parse(R"({"meta":{"id":"x"},"score":NaN})").id.empty());
}

TEST_CASE("a system text beside the turns is read, blank is none, another type is malformed") {
  const std::pair<const char*, const char*> read[] = {
      {R"("system":"Be kind.",)", "Be kind."},
      {R"("system_prompt":"Be kind.",)", "Be kind."},
      {R"("system":"Be kind.","system_prompt":"Be kind.",)", "Be kind."},
      {R"("system":"","system_prompt":"Be kind.",)", "Be kind."},
      {R"("system":null,)", ""},
      {R"("system":" \n",)", ""},
      {"", ""}};
  for (const auto& [beside, system] : read) {
    CAPTURE(beside);
    CHECK(parse(record(beside, "")).system == system);
    CHECK(parse(record(beside, "")).skip == Skip::none);
  }
  for (const char* odd : {"7", "false", R"(["Be kind."])", R"({"content":"Be kind."})"})
    CHECK(skip_of(record(R"("system":)" + std::string(odd) + ",", "")) == "malformed");
  CHECK(skip_of(record(R"("system":"Be kind.","system_prompt":"Be rude.",)", "")) ==
        "other_system");
}

TEST_CASE("marks of a turn or record make answers context, and unclear marks skip the record") {
  for (const char* name : {"weight", "train", "loss_mask"})
    for (const auto& [value, outcome] : {std::pair{"0", "context"},
                                         {"0.0", "context"},
                                         {"false", "context"},
                                         {"1", "target"},
                                         {"1.0", "target"},
                                         {"true", "target"},
                                         {"null", "target"},
                                         {"0.5", "odd_mark"},
                                         {"2", "odd_mark"},
                                         {"-1", "odd_mark"},
                                         {"\"0\"", "odd_mark"},
                                         {"[0,1]", "odd_mark"},
                                         {"{}", "odd_mark"}}) {
      const std::string field = '"' + std::string(name) + "\":" + value + ",";
      for (const std::string& text : {record("", field), record(field, "")}) {
        CAPTURE(text);
        const Conversation conversation = parse(text);
        if (conversation.skip != Skip::none)
          CHECK(name_of(conversation.skip) == std::string(outcome));
        else
          CHECK((conversation.turns.at(1).target ? "target" : "context") == std::string(outcome));
      }
    }
  CHECK_FALSE(parse(record("", R"("weight":1,"train":false,)")).turns.at(1).target);
  CHECK_FALSE(parse(record("", R"("loss":false,)")).turns.at(1).target);
  CHECK(parse(record(R"("loss":1.25,)", "")).turns.at(1).target);
}

TEST_CASE("reasoning is read under each of its names") {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string field = '"' + std::string(name) + "\":";
    CHECK(parse(record("", field + R"("why",)")).turns.at(1).reasoning == "why");
    for (const char* none : {"null,", "\"\",", "\" \\n\","})
      CHECK(parse(record("", field + none)).turns.at(1).reasoning.empty());
    for (const char* odd : {"true,", "[\"why\"],", "{\"text\":\"why\"},"})
      CHECK(skip_of(record("", field + odd)) == "other_content");
    CHECK(skip_of(R"({"messages":[{"role":"user","content":"q",)" + field + R"("why"}]})") ==
          "other_content");
  }
  const std::string twice = R"("reasoning":"why","reasoning_content":)";
  CHECK(parse(record("", twice + R"("why",)")).turns.at(1).reasoning == "why");
  CHECK(skip_of(record("", twice + R"("because",)")) == "other_content");
}

TEST_CASE("what messages have no place for skips the record, empty fields of it do not") {
  for (const char* name : {"tool_calls", "function_call", "tools", "images", "image", "audio"}) {
    const std::string field = '"' + std::string(name) + "\":";
    for (const char* value : {"[{\"name\":\"f\"}],", "{\"name\":\"f\"},", "\"x\",", "true,"}) {
      CAPTURE(name, value);
      CHECK(skip_of(record("", field + value)) == "other_content");
      CHECK(skip_of(record(field + value, "")) == "other_content");
    }
    for (const char* value : {"null,", "[],", "{},", "\"\",", "\"[]\",", "false,"}) {
      CAPTURE(name, value);
      CHECK(skip_of(record("", field + value)) == "none");
      CHECK(skip_of(record(field + value, "")) == "none");
    }
  }
  CHECK(skip_of(record("", R"("tool_calls":[{"id":"c"}],)", "null")) == "other_content");
  CHECK(skip_of(record("", R"("name":"Ann","timestamp":17,)")) == "none");
}

TEST_CASE("text parts are joined, other parts skip the record") {
  const std::string a = R"({"type":"text","text":"one, "})", b = R"({"type":"text","text":"two"})";
  CHECK(parse(record("", "", "[" + a + "]")).turns.at(1).text == "one, ");
  CHECK(parse(record("", "", "[" + a + "," + b + "]")).turns.at(1).text == "one, two");
  for (const std::string& parts :
       {std::string("[]"), std::string(R"(["one"])"),
        "[" + a + R"(,{"type":"image_url","image_url":{"url":"x"}}])",
        std::string(R"([{"type":"text"}])"), std::string(R"([{"type":"thinking","text":"x"}])"),
        std::string(R"([{"type":"text","text":"x","image":"y"}])")}) {
    CAPTURE(parts);
    CHECK(skip_of(record("", "", parts)) == "other_content");
  }
}
