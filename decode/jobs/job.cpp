#include "decode/jobs/job.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"

namespace dex {
namespace {

using Json = nlohmann::json;

// A value for a message. What is nested is named only: writing it out would recurse as deep as the
// line likes.
std::string shown(const Json& value) {
  return value.is_structured() ? value.type_name()
                               : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_field(const Json& object, const char* name) {
  const Json& value = object.at(name);
  require(value.is_string(), ExitCode::usage, "\"{}\" is {}, wanted a string", name,
          value.type_name());
  return value.get<std::string>();
}

std::vector<Message> messages_field(const Json& value) {
  require(value.is_array() && !value.empty(), ExitCode::usage,
          "\"messages\" is {}, wanted a list of messages",
          value.is_array() ? "empty" : value.type_name());
  std::vector<Message> messages;
  for (const Json& item : value) {
    require(item.is_object() && item.contains("role") && item.contains("content"), ExitCode::usage,
            "a message is {}, wanted an object with \"role\" and \"content\"", item.type_name());
    messages.push_back({text_field(item, "role"), text_field(item, "content")});
  }
  return messages;
}

std::optional<int> max_tokens_field(const Json& body) {
  const char* name =
      body.contains("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  if (!body.contains(name) || body.at(name).is_null()) return std::nullopt;
  const Json& value = body.at(name);
  require(value.is_number_integer(), ExitCode::usage, "\"{}\" is {}, wanted a whole number", name,
          shown(value));
  const auto count = value.get<std::int64_t>();
  require(count >= 0 && count <= std::numeric_limits<int>::max(), ExitCode::usage,
          "\"{}\" is {}, wanted 0 or more", name, shown(value));
  return int(count);
}

// Fields that would change the text must not be dropped in silence.
void check_unsupported(const Json& body) {
  if (const auto t = body.find("temperature"); t != body.end() && !t->is_null()) {
    require(t->is_number(), ExitCode::usage, "\"temperature\" is {}, wanted a number", shown(*t));
    require(t->get<double>() >= 0, ExitCode::usage, "\"temperature\" is {}, wanted 0 or more",
            shown(*t));
    require(t->get<double>() <= 1e-3, ExitCode::usage,
            "\"temperature\" is {}; only greedy decoding (0) is supported", shown(*t));
  }
  const auto given = [&](const char* name) {
    return body.contains(name) && !body.at(name).is_null();
  };
  for (const char* name : {"stop", "logit_bias", "tools", "tool_choice", "functions",
                           "response_format", "suffix", "stop_token_ids"})
    if (given(name)) fail(ExitCode::usage, "\"{}\" is not supported", name);
  for (const char* name : {"frequency_penalty", "presence_penalty", "stream", "logprobs",
                           "top_logprobs", "echo", "min_tokens", "ignore_eos"})
    if (given(name) && body.at(name) != Json(0) && body.at(name) != Json(false))
      fail(ExitCode::usage, "\"{}\" is {}, which is not supported", name, shown(body.at(name)));
  for (const char* name : {"n", "best_of", "repetition_penalty"})
    if (given(name) && body.at(name) != Json(1))
      fail(ExitCode::usage, "\"{}\" is {}; only 1 is supported", name, shown(body.at(name)));
}

Job parse_body(const Json& body) {
  check_unsupported(body);
  Job job;
  job.max_tokens = max_tokens_field(body);
  require(body.contains("prompt") != body.contains("messages"), ExitCode::usage,
          "the line has {}, wanted one of \"prompt\" and \"messages\"",
          body.contains("prompt") ? "both" : "neither");
  if (body.contains("prompt"))
    job.prompt = text_field(body, "prompt");
  else
    job.messages = messages_field(body.at("messages"));
  return job;
}

std::variant<Job, BadJob> parse_line(std::string_view line) {
  std::string custom_id;
  try {
    const Json object = Json::parse(line);
    require(object.is_object(), ExitCode::usage, "the line is {}, wanted an object",
            object.type_name());
    if (object.contains("custom_id")) custom_id = text_field(object, "custom_id");
    const bool nested = object.contains("body");
    require(!nested || object.at("body").is_object(), ExitCode::usage,
            "\"body\" is {}, wanted an object", nested ? object.at("body").type_name() : "");
    Job job = parse_body(nested ? object.at("body") : object);
    job.custom_id = custom_id;
    return job;
  } catch (const Json::exception& error) {
    return BadJob{custom_id, fmt::format("not JSON: {}", error.what())};
  } catch (const Error& error) {
    return BadJob{custom_id, error.what()};
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::vector<JobLine> parse_jobs(std::string_view file) {
  if (file.starts_with("\xEF\xBB\xBF")) file.remove_prefix(3);
  std::vector<JobLine> jobs;
  for (int number = 1; !file.empty(); ++number) {
    const auto end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_blank(line)) jobs.push_back({number, parse_line(line)});
  }
  return jobs;
}

std::vector<JobLine> read_jobs(const std::filesystem::path& path, int limit) {
  auto lines = parse_jobs(read_file(path));
  if (limit > 0 && lines.size() > std::size_t(limit)) lines.resize(limit);
  for (const JobLine& line : lines)
    if (const auto* bad = std::get_if<BadJob>(&line.content))
      fail(ExitCode::usage, "{} line {}: {}", path.string(), line.number, bad->reason);
  require(!lines.empty(), ExitCode::usage, "{}: no prompts", path.string());
  return lines;
}

}  // namespace dex
