// Every field of a job is used, known to be harmless, or refused by name.
#include "decode/jobs/job_fields.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "common/base/file.h"
#include "decode/jobs/job.h"
#include "tests/support/shared.h"

namespace dex {
namespace {

using Json = nlohmann::json;

Json chat_body() { return Json::parse(R"({"messages":[{"role":"user","content":"hi"}]})"); }
Json prompt_body() { return Json::parse(R"({"prompt":"go on"})"); }

std::variant<Job, BadJob> parsed(const Json& line) {
  const auto lines = parse_jobs(line.dump());
  REQUIRE(lines.size() == 1);
  return lines.front().content;
}
// Empty where the line is taken.
std::string refusal(const Json& line) {
  const auto content = parsed(line);
  const auto* bad = std::get_if<BadJob>(&content);
  return bad ? bad->reason : "";
}
std::string refusal_of_field(Json body, const std::string& name, const Json& value) {
  body[name] = value;
  return refusal({{"custom_id", "a"}, {"body", body}});
}
Job taken(const Json& line) {
  const auto content = parsed(line);
  if (const auto* bad = std::get_if<BadJob>(&content)) FAIL(line.dump() << ": " << bad->reason);
  return std::get<Job>(content);
}

struct FieldCase {
  const char* name;
  std::vector<const char*> taken, refused;  // JSON values
};

// What the OpenAI and vLLM batch bodies may hold, from their published field lists.
const std::vector<FieldCase> kCases{
    {"model", {"\"x\""}, {"3", "[\"x\"]"}},
    {"temperature", {"0", "0.0", "0.001", "1e-6"}, {"0.0011", "1", "-1", "\"0\"", "[0]", "true"}},
    {"top_p", {"0", "1", "0.9"}, {"-0.1", "1.5", "\"1\""}},
    {"min_p", {"0", "1"}, {"2"}},
    {"top_k", {"-1", "0", "1", "100000"}, {"-2", "0.5", "\"5\""}},
    {"seed", {"0", "-7", "1"}, {"0.5", "\"1\""}},
    {"user", {"\"u\"", "{}"}, {}},
    {"safety_identifier", {"\"u\""}, {}},
    {"metadata", {"{\"a\":\"b\"}"}, {}},
    {"store", {"false", "true"}, {}},
    {"service_tier", {"\"flex\""}, {}},
    {"priority", {"3"}, {}},
    {"request_id", {"\"r\""}, {}},
    {"prompt_cache_key", {"\"k\""}, {}},
    {"prompt_cache_retention", {"\"24h\""}, {}},
    {"cache_salt", {"\"s\""}, {}},
    {"stream_options", {"{\"include_usage\":true}"}, {}},
    {"parallel_tool_calls", {"true", "false"}, {}},
    {"n", {"1", "1.0"}, {"0", "2", "\"1\""}},
    {"best_of", {"1"}, {"3"}},
    {"repetition_penalty", {"1", "1.0"}, {"1.1", "0"}},
    {"length_penalty", {"1.0"}, {"0.5"}},
    {"frequency_penalty", {"0", "0.0"}, {"0.5", "-1"}},
    {"presence_penalty", {"0"}, {"0.5"}},
    {"no_repeat_ngram_size", {"0"}, {"2"}},
    {"min_tokens", {"0"}, {"1"}},
    {"top_logprobs", {"0"}, {"5"}},
    {"stream", {"false"}, {"true", "0"}},
    {"logprobs", {"false"}, {"true", "0", "3"}},
    {"echo", {"false"}, {"true"}},
    {"ignore_eos", {"false"}, {"true"}},
    {"use_beam_search", {"false"}, {"true"}},
    {"include_stop_str_in_output", {"false"}, {"true"}},
    {"return_tokens_as_token_ids", {"false"}, {"true"}},
    {"skip_special_tokens", {"true"}, {"false"}},
    {"spaces_between_special_tokens", {"true"}, {"false"}},
    {"stop", {"[]"}, {"\"x\"", "[\"x\"]", "\"\"", "{}"}},
    {"stop_token_ids", {"[]"}, {"[2]"}},
    {"bad_words", {"[]"}, {"[\"the\"]"}},
    {"tools", {"[]"}, {"[{\"type\":\"function\"}]"}},
    {"functions", {"[]"}, {"[{}]"}},
    {"documents", {"[]"}, {"[{\"text\":\"a\"}]"}},
    {"logit_bias", {"{}"}, {"{\"5\":1}", "[]"}},
    {"tool_choice", {"\"none\"", "\"auto\""}, {"\"required\"", "{\"type\":\"function\"}"}},
    {"function_call", {"\"none\"", "\"auto\""}, {"{\"name\":\"f\"}"}},
    {"response_format",
     {"{\"type\":\"text\"}"},
     {"{\"type\":\"json_object\"}", "{\"type\":\"text\",\"schema\":{}}", "\"text\""}},
    {"modalities", {"[\"text\"]"}, {"[\"text\",\"audio\"]", "[]"}},
    {"suffix", {"\"\""}, {"\"end\""}},
    // not known: whatever they hold
    {"guided_json", {}, {"{\"type\":\"object\"}", "false"}},
    {"guided_regex", {}, {"\"a\""}},
    {"guided_choice", {}, {"[\"a\"]"}},
    {"guided_grammar", {}, {"\"root ::= x\""}},
    {"structured_outputs", {}, {"{\"choice\":[\"a\"]}"}},
    {"structural_tag", {}, {"\"x\""}},
    {"allowed_token_ids", {}, {"[300]", "[]"}},
    {"chat_template", {}, {"\"{{ messages }}\""}},
    {"truncate_prompt_tokens", {}, {"2", "-1"}},
    {"prompt_logprobs", {}, {"0", "1"}},
    {"reasoning_effort", {}, {"\"low\"", "\"none\""}},
    {"thinking_token_budget", {}, {"10"}},
    {"verbosity", {}, {"\"low\""}},
    {"prediction", {}, {"{\"type\":\"content\",\"content\":\"a\"}"}},
    {"web_search_options", {}, {"{}"}},
    {"audio", {}, {"{\"voice\":\"a\"}"}},
    {"logits_processors", {}, {"[]"}},
    {"vllm_xargs", {}, {"{}"}},
    {"mm_processor_kwargs", {}, {"{}"}},
    {"prefix", {}, {"true"}},
    {"typical_p", {}, {"0.5"}},
    {"num_beams", {}, {"4"}},
    {"do_sample", {}, {"true"}},
    {"input", {}, {"\"Hello\""}},
    {"max_token", {}, {"3"}},  // spelt wrongly
    {"Temperature", {}, {"0"}},
    {"", {}, {"1"}},
};

}  // namespace

TEST_CASE("a field is taken with the values that cannot change greedy text, and no other") {
  for (const FieldCase& field : kCases)
    for (const Json& body : {chat_body(), prompt_body()}) {
      CAPTURE(field.name);
      CHECK(refusal_of_field(body, field.name, nullptr) == "");
      for (const char* value : field.taken) {
        CAPTURE(value);
        CHECK(refusal_of_field(body, field.name, Json::parse(value)) == "");
      }
      for (const char* value : field.refused) {
        CAPTURE(value);
        CHECK_THAT(refusal_of_field(body, field.name, Json::parse(value)),
                   Catch::Contains(fmt::format("\"{}\" is ", field.name)));
      }
    }
}

TEST_CASE("the flat form refuses the fields that the batch form refuses") {
  for (const FieldCase& field : kCases)
    for (const char* value : field.refused) {
      Json line = prompt_body();
      line[field.name] = Json::parse(value);
      CAPTURE(line.dump());
      CHECK_THAT(refusal(line), Catch::Contains(fmt::format("\"{}\" is ", field.name)));
    }
}

TEST_CASE("special tokens are added where they are always added") {
  CHECK(refusal_of_field(chat_body(), "add_special_tokens", false) == "");
  CHECK(refusal_of_field(prompt_body(), "add_special_tokens", true) == "");
  for (const auto& [body, value] :
       {std::pair(chat_body(), Json(true)), std::pair(prompt_body(), Json(false))})
    CHECK_THAT(refusal_of_field(body, "add_special_tokens", value),
               Catch::Contains("add_special_tokens"));
}

TEST_CASE("what a template is told is read with messages, and refused with a prompt") {
  const auto with = [](Json body, const char* fields) {
    body.update(Json::parse(fields));
    return body;
  };
  Json answered = chat_body();
  answered["messages"].push_back({{"role", "assistant"}, {"content", "yes"}});
  const auto job = [&](const Json& body, const char* fields) { return taken(with(body, fields)); };
  CHECK(job(chat_body(), "{}").begins_answer);
  CHECK(!job(chat_body(), "{}").goes_on_with_last);
  CHECK(job(chat_body(), "{}").template_kwargs == "");
  CHECK(job(chat_body(), R"({"add_generation_prompt":null})").begins_answer);
  CHECK(job(chat_body(), R"({"add_generation_prompt":true})").begins_answer);
  CHECK(!job(chat_body(), R"({"add_generation_prompt":false})").begins_answer);
  CHECK(!job(answered, R"({"continue_final_message":false})").goes_on_with_last);
  const Job open =
      job(answered, R"({"continue_final_message":true,"add_generation_prompt":false})");
  CHECK(open.goes_on_with_last);
  CHECK(!open.begins_answer);
  CHECK(job(chat_body(), R"({"chat_template_kwargs":{}})").template_kwargs == "");
  CHECK(Json::parse(
            job(chat_body(), R"({"chat_template_kwargs":{"a":{"b":[1,null]}}})").template_kwargs) ==
        Json::parse(R"({"a":{"b":[1,null]}})"));

  const auto refused = [&](const Json& body, const char* fields) {
    const std::string reason = refusal(with(body, fields));
    CAPTURE(fields, reason);
    CHECK(reason != "");
    return reason;
  };
  // as vLLM: one place is left to the model, and a new answer is the default
  const auto both = [&](const char* fields, bool by_default) {
    const std::string reason = refused(answered, fields);
    CHECK_THAT(reason, Catch::Contains("\"continue_final_message\" is true and "
                                       "\"add_generation_prompt\" is true"));
    CHECK((reason.find("by default") != std::string::npos) == by_default);
  };
  both(R"({"continue_final_message":true})", true);
  both(R"({"continue_final_message":true,"add_generation_prompt":null})", true);
  both(R"({"continue_final_message":true,"add_generation_prompt":true})", false);
  CHECK_THAT(
      refused(chat_body(), R"({"continue_final_message":true,"add_generation_prompt":false})"),
      Catch::Contains("by user"));
  for (const char* field : {"\"add_generation_prompt\"", "\"continue_final_message\""})
    for (const char* value : {"0", "1", "\"true\"", "[]", "{}"})
      CHECK_THAT(refused(answered, fmt::format("{{{}:{}}}", field, value).c_str()),
                 Catch::Contains(fmt::format("{} is {}", field, value)));
  for (const char* value : {"[]", "\"{}\"", "true", "[{\"a\":1}]"})
    refused(answered, fmt::format("{{\"chat_template_kwargs\":{}}}", value).c_str());
  // a prompt has no template
  CHECK(refusal(with(prompt_body(), R"({"add_generation_prompt":true,"chat_template_kwargs":{},
                                        "continue_final_message":false})")) == "");
  for (const char* fields :
       {R"({"add_generation_prompt":false})", R"({"continue_final_message":true})",
        R"({"chat_template_kwargs":{"a":1}})"})
    refused(prompt_body(), fields);
}

TEST_CASE("every known field was tried, and the page shows their table") {
  std::set<std::string_view> tried{"messages",
                                   "prompt",
                                   "max_tokens",
                                   "max_completion_tokens",
                                   "add_special_tokens",
                                   "chat_template_kwargs",
                                   "add_generation_prompt",
                                   "continue_final_message"};
  for (const FieldCase& field : kCases) tried.insert(field.name);
  std::set<std::string_view> seen;
  for (const JobFields& fields : job_fields())
    for (const std::string_view name : fields.names) {
      CAPTURE(name);
      CHECK(tried.count(name) == 1);
      CHECK(seen.insert(name).second);
    }
  const std::string page =
      read_file(std::filesystem::path(DEX_SOURCE_DIR) / "decode" / "README.md");
  INFO(job_field_table());
  CHECK(page.find(job_field_table()) != std::string::npos);
}

TEST_CASE("the number of tokens may be written in two fields and as a whole float") {
  const auto tokens = [](const char* fields) {
    Json body = chat_body();
    body.update(Json::parse(fields));
    return taken({{"body", body}}).max_tokens;
  };
  CHECK(tokens("{}") == std::nullopt);
  CHECK(tokens(R"({"max_tokens":null})") == std::nullopt);
  CHECK(tokens(R"({"max_tokens":4.0})") == 4);
  CHECK(tokens(R"({"max_completion_tokens":2,"max_tokens":null})") == 2);
  CHECK(tokens(R"({"max_completion_tokens":4,"max_tokens":4})") == 4);
  CHECK(tokens(R"({"max_tokens":2147483647})") == 2147483647);
  for (const char* value : {"4.5", "-1", "-0.5", "2147483648", "1e300", "\"4\"", "true", "[]"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_of_field(chat_body(), "max_completion_tokens", Json::parse(value)),
               Catch::Contains("max_completion_tokens"));
  }
  CHECK_THAT(
      refusal({{"prompt", "a"}, {"max_tokens", 4}, {"max_completion_tokens", 2}}),
      Catch::Contains("\"max_tokens\" is 4") && Catch::Contains("\"max_completion_tokens\" is 2"));
}

TEST_CASE("method and url must ask what the body does") {
  const auto line = [](const Json& body, const Json& method, const Json& url) {
    return Json{{"custom_id", "a"}, {"method", method}, {"url", url}, {"body", body}};
  };
  CHECK(refusal(line(chat_body(), "POST", "/v1/chat/completions")) == "");
  CHECK(refusal(line(prompt_body(), "POST", "/v1/completions")) == "");
  CHECK(refusal(line(prompt_body(), nullptr, nullptr)) == "");
  for (const char* url : {"/v1/embeddings", "/v1/responses", "/v1/score", "", "/v1/completions"})
    CHECK_THAT(refusal(line(chat_body(), "POST", url)), Catch::Contains("\"url\" is "));
  for (const char* url : {"/v1/embeddings", "/v1/chat/completions", "v1/completions"})
    CHECK_THAT(refusal(line(prompt_body(), "POST", url)), Catch::Contains("\"url\" is "));
  CHECK_THAT(refusal(line(chat_body(), "GET", "/v1/chat/completions")),
             Catch::Contains("\"method\" is \"GET\""));
  CHECK_THAT(refusal(line(chat_body(), 1, nullptr)), Catch::Contains("\"method\" is 1"));
  Json flat = prompt_body();
  flat["url"] = "/v1/embeddings";
  CHECK_THAT(refusal(flat), Catch::Contains("/v1/embeddings"));
}

TEST_CASE("a field beside the body is known or refused") {
  for (const char* name : {"messages", "max_tokens", "temperature", "priority", "extra", "Body"}) {
    CAPTURE(name);
    const Json line = {{"custom_id", "a"}, {"body", chat_body()}, {name, 1}};
    CHECK_THAT(refusal(line), Catch::Contains(fmt::format("\"{}\" is 1", name)));
  }
  CHECK(taken({{"body", chat_body()}, {"created", 1700000000}}).created == 1700000000);
  CHECK(taken({{"prompt", "a"}, {"created", 1700000000.0}}).created == 1700000000);
  CHECK_FALSE(taken({{"prompt", "a"}, {"created", nullptr}}).created);
  CHECK_THAT(refusal({{"prompt", "a"}, {"created", -1}}), Catch::Contains("\"created\" is -1"));
  CHECK_THAT(refusal({{"prompt", "a"}, {"created", "now"}}), Catch::Contains("now"));
}

TEST_CASE("a message is used whole or refused by its place and field") {
  const auto messages = [](const char* text) {
    return taken({{"body", {{"messages", Json::parse(text)}}}}).messages;
  };
  const auto content = [&](const char* text) {
    return messages(fmt::format(R"([{{"role":"user","content":{}}}])", text).c_str())
        .front()
        .content;
  };
  CHECK(content(R"("hi")") == "hi");
  CHECK(content(R"("")") == "");
  CHECK(content(R"([{"type":"text","text":"Hello "},{"type":"text","text":"there!"}])") ==
        "Hello there!");
  const auto answer = messages(
      R"([{"role":"system","content":"s","name":null},{"role":"user","content":"1"},
          {"role":"assistant","content":"2","reasoning_content":"thought","tool_calls":[],
           "refusal":null,"annotations":[],"audio":null,"function_call":null},
          {"role":"user","content":"3"}])");
  REQUIRE(answer.size() == 4);
  CHECK(answer[0].role == "system");
  CHECK(answer[2].content == "2");
  CHECK(answer[2].reasoning == "thought");
  CHECK(answer[3].reasoning == "");

  const std::vector<std::pair<const char*, const char*>> refused{
      {R"([{"role":"developer","content":"a"}])", "developer"},
      {R"([{"role":"tool","content":"a","tool_call_id":"x"}])", "tool"},
      {R"([{"content":"a"}])", "role"},
      {R"([{"role":"user"}])", "content"},
      {R"([{"role":"user","content":null}])", "null"},
      {R"([{"role":"user","content":[]}])", "content"},
      {R"([{"role":"user","content":3}])", "3"},
      {R"([{"role":"user","content":["a"]}])", "part"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
       "image_url"},
      {R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{}}]}])",
       "cache_control"},
      {R"([{"role":"user","content":[{"type":"text","text":null}]}])", "part"},
      {R"([{"role":"user","content":"a","name":"bob"}])", "name"},
      {R"([{"role":"user","content":"a","weight":0}])", "weight"},
      {R"([{"role":"user","content":"a","reasoning_content":"b"}])", "reasoning_content"},
      {R"([{"role":"assistant","content":"a","reasoning_content":["b"]}])", "reasoning_content"},
      {R"([{"role":"assistant","content":"a","reasoning_content":"b","reasoning":"c"}])",
       "reasoning"},
      {R"([{"role":"assistant","content":"a","tool_calls":[{"id":"1"}]}])", "tool_calls"},
      {R"([{"role":"assistant","content":"a","refusal":"no"}])", "refusal"},
      {R"([{"role":"user","content":"a","prefix":true}])", "prefix"},
      {R"(["a"])", "\"a\""},
      {R"([{"role":"user","content":"fine"},[]])", "message 2"}};
  for (const auto& [text, words] : refused) {
    CAPTURE(text);
    CHECK_THAT(refusal({{"messages", Json::parse(text)}}),
               Catch::Contains(words) && Catch::Contains("message "));
  }
}

TEST_CASE("a prompt is a text or token ids, one a line") {
  const auto job = [](const char* prompt) { return taken({{"prompt", Json::parse(prompt)}}); };
  CHECK(job(R"("a")").prompt == "a");
  CHECK(job(R"(["a"])").prompt == "a");
  CHECK(job("[1,2,3]").prompt_ids == std::vector<Token>{1, 2, 3});
  CHECK(job("[[7]]").prompt_ids == std::vector<Token>{7});
  CHECK_FALSE(job("[0]").prompt);
  for (const char* prompt :
       {"3", "[]", "[\"a\",\"b\"]", "[[1],[2]]", "[[]]", "[[[1]]]", "[1,\"a\"]", "[-1]", "[0.5]",
        "[2147483648]", "{\"text\":\"a\"}", "[null]", "[true]", "false"}) {
    CAPTURE(prompt);
    CHECK_THAT(refusal({{"prompt", Json::parse(prompt)}}), Catch::Contains("\"prompt\""));
  }
}

TEST_CASE("a custom_id is a text, may be absent, and is the first line's that has it") {
  CHECK(taken({{"prompt", "a"}}).custom_id == "");
  CHECK(taken({{"prompt", "a"}, {"custom_id", nullptr}}).custom_id == "");
  for (const char* id : {"3", "0", "\"\"", "true", "[\"a\"]", "{}"})
    CHECK_THAT(refusal({{"prompt", "a"}, {"custom_id", Json::parse(id)}}),
               Catch::Contains(fmt::format("\"custom_id\" is {}", id)));

  const auto lines = parse_jobs(
      "{\"custom_id\":\"a\",\"prompt\":\"1\"}\n\n{\"prompt\":\"2\"}\n"
      "{\"custom_id\":\"a\",\"prompt\":\"3\"}\n{\"prompt\":\"2\"}\n"
      "{\"custom_id\":\"b\",\"prompt\":4}\n{\"custom_id\":\"b\",\"prompt\":\"5\"}\n"
      "{\"custom_id\":\"a\"}\n");
  REQUIRE(lines.size() == 7);
  std::vector<int> good;
  for (const JobLine& line : lines)
    if (std::holds_alternative<Job>(line.content)) good.push_back(line.number);
  CHECK(good == std::vector<int>{1, 3, 5});
  const auto reason = [&](int i) { return std::get<BadJob>(lines[i].content).reason; };
  CHECK(lines[2].number == 4);
  CHECK_THAT(reason(2), Catch::Contains("\"a\" in line 1"));
  CHECK_THAT(reason(5), Catch::Contains("\"b\" in line 6"));  // which is bad itself
  CHECK_THAT(reason(6), Catch::Contains("\"a\" in line 1"));
  CHECK(custom_id_of(lines[2]) == "a");
}

TEST_CASE("lines of equal bytes have equal digests, others have others") {
  const auto lines = parse_jobs("{\"prompt\":\"a\"}\r\n{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].digest == lines[1].digest);
  CHECK(lines[0].digest != lines[2].digest);
}

TEST_CASE("nesting is taken as deep as anyone writes it, and no deeper") {
  const auto nested = [](int depth) {
    return "{\"prompt\":\"a\",\"metadata\":" + std::string(depth, '[') + std::string(depth, ']') +
           "}";
  };
  CHECK(std::holds_alternative<Job>(parse_jobs(nested(60)).front().content));
  for (const int depth : {70, 1000, 1000000}) {
    const auto lines = parse_jobs(nested(depth) + "\n{\"prompt\":\"b\"}");
    REQUIRE(lines.size() == 2);
    CHECK_THAT(std::get<BadJob>(lines[0].content).reason, Catch::Contains("nested deeper than 64"));
    CHECK(std::holds_alternative<Job>(lines[1].content));
  }
}

TEST_CASE("fields that others ignored in silence are honoured or refused by name") {
  const auto path = test::shared("cases/new/N-B1-fields.jsonl");
  if (!path) return;
  const std::set<std::string> wanted{"ctk",        "agp",        "cfm",         "plain",
                                     "parts",      "stop-empty", "format-text", "bias-empty",
                                     "seed-top_p", "float-max",  "reasoning"};
  for (const JobLine& line : parse_jobs(read_file(*path))) {
    const std::string id = custom_id_of(line);
    CAPTURE(id);
    CHECK(std::holds_alternative<Job>(line.content) == (wanted.count(id) == 1));
  }
}

}  // namespace dex
