#include "decode/jobs/job_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/base/error.h"

namespace dex {
namespace {

using Json = nlohmann::json;

bool number_in(const Json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}
bool whole_from(const Json& value, double least) {
  return value.is_number_integer() && value.get<double>() >= least;
}

// What is read elsewhere is checked there.
bool read_with_the_text(const Json&, JobKind) { return true; }
bool anything(const Json&, JobKind) { return true; }
bool text(const Json& value, JobKind) { return value.is_string(); }
bool zero(const Json& value, JobKind) { return value == Json(0); }
bool one(const Json& value, JobKind) { return value == Json(1); }
bool no(const Json& value, JobKind) { return value == Json(false); }
bool yes(const Json& value, JobKind) { return value == Json(true); }
bool empty_list(const Json& value, JobKind) { return value == Json::array(); }
bool empty_object(const Json& value, JobKind) { return value == Json::object(); }
bool empty_text(const Json& value, JobKind) { return value == Json(""); }
bool share(const Json& value, JobKind) { return number_in(value, 0, 1); }
bool rank(const Json& value, JobKind) { return whole_from(value, -1); }
bool whole(const Json& value, JobKind) { return value.is_number_integer(); }
bool greedy(const Json& value, JobKind) { return number_in(value, 0, 1e-3); }
bool no_tool(const Json& value, JobKind) { return value == Json("none") || value == Json("auto"); }
bool text_format(const Json& value, JobKind) { return value == Json{{"type", "text"}}; }
bool text_only(const Json& value, JobKind) { return value == Json::array({"text"}); }
// What a template is told; a prompt has none.
bool told_or(bool standard, const Json& value, JobKind kind) {
  return value.is_boolean() && (kind == JobKind::chat || value == Json(standard));
}
bool told_or_no(const Json& value, JobKind kind) { return told_or(false, value, kind); }
bool told_or_yes(const Json& value, JobKind kind) { return told_or(true, value, kind); }
bool kwargs(const Json& value, JobKind kind) {
  return value.is_object() && (kind == JobKind::chat || value.empty());
}
// A template holds its special tokens; a prompt gets the one that the model wants before it.
bool as_we_do(const Json& value, JobKind kind) { return value == Json(kind != JobKind::chat); }

const std::array kFields = std::to_array<JobFields>({
    {{"messages", "prompt"}, "see above", "the text", read_with_the_text},
    {{"max_tokens", "max_completion_tokens"},
     "0 or more; equal, if both are given",
     "new tokens at most",
     read_with_the_text},
    {{"model"}, "a text", "the model is `--model`, and the answer names it", text},
    {{"temperature"}, "0 .. 0.001", "read as 0, and so is its absence: decoding is greedy", greedy},
    {{"top_p", "min_p"}, "0 .. 1", "the best token always stays", share},
    {{"top_k"}, "-1 or more", "the best token always stays", rank},
    {{"seed"}, "a whole number", "nothing is drawn", whole},
    {{"user", "safety_identifier", "metadata", "store"},
     "anything",
     "about who asks, and what becomes of the answer",
     anything},
    {{"service_tier", "priority", "request_id"}, "anything", "about queues", anything},
    {{"prompt_cache_key", "prompt_cache_retention", "cache_salt"},
     "anything",
     "about caches",
     anything},
    {{"stream_options", "parallel_tool_calls"},
     "anything",
     "about streams and tools, and there are none",
     anything},
    {{"n", "best_of", "repetition_penalty", "length_penalty"}, "1", "off", one},
    {{"frequency_penalty", "presence_penalty", "no_repeat_ngram_size", "min_tokens",
      "top_logprobs"},
     "0",
     "off",
     zero},
    {{"stream", "logprobs", "echo", "ignore_eos", "use_beam_search"}, "false", "off", no},
    {{"include_stop_str_in_output", "return_tokens_as_token_ids"}, "false", "off", no},
    {{"skip_special_tokens", "spaces_between_special_tokens"}, "true", "what is done", yes},
    {{"chat_template_kwargs"},
     "an object with messages, else {}",
     "what the template sees, over `--chat-template-kwargs`",
     kwargs},
    {{"add_generation_prompt"},
     "true; false with messages, too",
     "whether the template's header of an answer ends the prompt",
     told_or_yes},
    {{"continue_final_message"},
     "false; true with messages and `add_generation_prompt` false",
     "whether the prompt ends inside the last message, an answer",
     told_or_no},
    {{"add_special_tokens"},
     "false with messages, true with a prompt",
     "what is done: a template has its own",
     as_we_do},
    {{"stop", "stop_token_ids", "bad_words", "tools", "functions", "documents"},
     "[]",
     "off",
     empty_list},
    {{"logit_bias"}, "{}", "off", empty_object},
    {{"tool_choice", "function_call"}, "\"none\" or \"auto\"", "there are no tools", no_tool},
    {{"response_format"}, "{\"type\": \"text\"}", "what is done", text_format},
    {{"modalities"}, "[\"text\"]", "what is done", text_only},
    {{"suffix"}, "\"\"", "off", empty_text},
});

const JobFields* fields_with(std::string_view name) {
  for (const JobFields& fields : kFields)
    if (std::find(fields.names.begin(), fields.names.end(), name) != fields.names.end())
      return &fields;
  return nullptr;
}

}  // namespace

std::span<const JobFields> job_fields() { return kFields; }

void check_job_fields(const Json& body, JobKind kind) {
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) continue;
    const JobFields* fields = fields_with(name);
    require(fields != nullptr, ExitCode::usage,
            "\"{}\" is {}: a field that is not known, and might change the text", name,
            shown(value));
    require(fields->takes(value, kind), ExitCode::usage, "\"{}\" is {}, wanted {}{}", name,
            shown(value), fields->wanted,
            fields->takes == greedy ? "; only greedy decoding is supported" : "");
  }
}

std::string job_field_table() {
  std::string table = "| field | taken | why |\n|---|---|---|\n";
  for (const JobFields& fields : kFields)
    table += fmt::format("| `{}` | {} | {} |\n", fmt::join(fields.names, "`, `"), fields.wanted,
                         fields.why);
  return table;
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 80;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text.replace(kMost, std::string::npos, " ...");
  return text;
}

}  // namespace dex
