#include "decode/jobs/job.h"

#include <cmath>
#include <limits>
#include <map>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "decode/jobs/job_fields.h"
#include "decode/jobs/job_messages.h"

namespace dex {
namespace {

using Json = nlohmann::json;

bool given(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && !found->is_null();
}

constexpr int kDeepest = 64;

// A line of brackets alone would cost memory and stack as deep as it likes.
Json parse_shallow(std::string_view line) {
  return Json::parse(line, [](int depth, Json::parse_event_t, const Json&) {
    require(depth <= kDeepest, ExitCode::usage, "an array or object is nested deeper than {}",
            kDeepest);
    return true;
  });
}

// JSON's 4.0 is the number 4: what pandas writes of a column with gaps.
std::int64_t whole_number(const Json& value, const char* name, std::int64_t most) {
  const double number = value.is_number() ? value.get<double>() : -1;
  require(number >= 0 && number <= double(most) && number == std::floor(number), ExitCode::usage,
          "\"{}\" is {}, wanted a whole number, 0 .. {}", name, shown(value), most);
  return value.get<std::int64_t>();
}

std::optional<int> max_tokens_of(const Json& body) {
  std::optional<int> count;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (!given(body, name)) continue;
    const int value = int(whole_number(body.at(name), name, std::numeric_limits<int>::max()));
    require(!count || *count == value, ExitCode::usage,
            "\"max_tokens\" is {} and \"max_completion_tokens\" is {}, wanted one of them",
            count.value_or(0), value);
    count = value;
  }
  return count;
}

std::vector<Token> ids_of(const Json& list) {
  std::vector<Token> ids;
  for (const Json& id : list)
    ids.push_back(Token(whole_number(id, "prompt", std::numeric_limits<Token>::max())));
  return ids;
}

// A text, a list of ids, or a list of one such prompt.
void read_prompt(const Json& value, Job& job) {
  if (value.is_string()) {
    job.prompt = value.get<std::string>();
    return;
  }
  require(value.is_array() && !value.empty(), ExitCode::usage,
          "\"prompt\" is {} ({}), wanted a text or a list of token ids", value.type_name(),
          shown(value));
  if (value.front().is_number()) {
    job.prompt_ids = ids_of(value);
    return;
  }
  require(value.size() == 1, ExitCode::usage, "\"prompt\" has {} texts, wanted one a line",
          value.size());
  const Json& only = value.front();
  require(only.is_string() || (only.is_array() && !only.empty() && only.front().is_number()),
          ExitCode::usage, "\"prompt\" holds {}, wanted a text or token ids", shown(only));
  read_prompt(only, job);
}

// One place is left to the model: a new answer or the last message's end.
void read_rendering(const Json& body, Job& job) {
  const Json begins = body.value("add_generation_prompt", Json());
  const Json goes_on = body.value("continue_final_message", Json());
  job.begins_answer = begins.is_null() || begins.get<bool>();
  job.goes_on_with_last = !goes_on.is_null() && goes_on.get<bool>();
  require(!job.goes_on_with_last || !job.begins_answer, ExitCode::usage,
          "\"continue_final_message\" is true and \"add_generation_prompt\" is true{}, wanted one "
          "of them false",
          begins.is_null() ? " by default" : "");
  require(!job.goes_on_with_last || job.messages.back().role == "assistant", ExitCode::usage,
          "\"continue_final_message\" is true and the last message is by {}, wanted by assistant",
          job.messages.back().role);
  if (given(body, "chat_template_kwargs") && !body.at("chat_template_kwargs").empty())
    job.template_kwargs = body.at("chat_template_kwargs").dump();
}

Job parse_body(const Json& body) {
  require(given(body, "prompt") != given(body, "messages"), ExitCode::usage,
          "the line has {}, wanted one of \"prompt\" and \"messages\"",
          given(body, "prompt") ? "both" : "neither");
  const JobKind kind = given(body, "messages") ? JobKind::chat : JobKind::completion;
  check_job_fields(body, kind);
  Job job;
  job.max_tokens = max_tokens_of(body);
  if (kind == JobKind::completion) {
    read_prompt(body.at("prompt"), job);
  } else {
    job.messages = messages_of(body.at("messages"));
    read_rendering(body, job);
  }
  return job;
}

// What a line says beside its body.
constexpr const char* kEnvelope[] = {"custom_id", "method", "url", "created"};

void check_envelope(const Json& line) {
  for (const auto& [name, value] : line.items())
    require(name == "body" || value.is_null() ||
                std::find(std::begin(kEnvelope), std::end(kEnvelope), name) != std::end(kEnvelope),
            ExitCode::usage, "\"{}\" is {}: a field that is not known beside \"body\"", name,
            shown(value));
}

// Where the line says what is asked, it must ask what its body does.
void check_address(const Json& line, const Job& job) {
  const std::string wanted = job.messages.empty() ? "/v1/completions" : "/v1/chat/completions";
  require(!given(line, "method") || line.at("method") == "POST", ExitCode::usage,
          "\"method\" is {}, wanted \"POST\"", shown(line.value("method", Json())));
  require(!given(line, "url") || line.at("url") == wanted, ExitCode::usage,
          "\"url\" is {}, wanted \"{}\" for a line with \"{}\"", shown(line.value("url", Json())),
          wanted, job.messages.empty() ? "prompt" : "messages");
}

std::string named_id(const Json& line) {
  if (!given(line, "custom_id")) return "";
  const Json& id = line.at("custom_id");
  require(id.is_string() && id != "", ExitCode::usage,
          "\"custom_id\" is {}, wanted a text that is not empty", shown(id));
  return id.get<std::string>();
}

Job parse_object(const Json& line) {
  const bool nested = line.contains("body");
  Json body = nested ? line.at("body") : line;
  require(body.is_object(), ExitCode::usage, "\"body\" is {}, wanted an object", shown(body));
  if (nested)
    check_envelope(line);
  else
    for (const char* name : kEnvelope) body.erase(name);
  Job job = parse_body(body);
  check_address(line, job);
  if (given(line, "created"))
    job.created = whole_number(line.at("created"), "created", std::int64_t{1} << 53);
  return job;
}

std::variant<Job, BadJob> parse_line(std::string_view line) {
  std::string custom_id;
  try {
    const Json object = parse_shallow(line);
    require(object.is_object(), ExitCode::usage, "the line is {}, wanted an object",
            object.type_name());
    custom_id = named_id(object);
    Job job = parse_object(object);
    job.custom_id = custom_id;
    return job;
  } catch (const Json::exception& error) {
    return BadJob{custom_id, fmt::format("not JSON: {}", error.what())};
  } catch (const Error& error) {
    return BadJob{custom_id, error.what()};
  }
}

// Rows are found by their custom_id: the first line has it, the others become bad.
void refuse_repetitions(std::vector<JobLine>& lines) {
  std::map<std::string, int> seen;
  for (JobLine& line : lines) {
    const std::string id = custom_id_of(line);
    if (id.empty()) continue;
    const auto [first, fresh] = seen.emplace(id, line.number);
    if (!fresh)
      line.content = BadJob{id, fmt::format("\"custom_id\" is {} in line {}, too; wanted another",
                                            shown(Json(id)), first->second)};
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::string custom_id_of(const JobLine& line) {
  return std::visit([](const auto& content) { return content.custom_id; }, line.content);
}

std::vector<JobLine> parse_jobs(std::string_view file) {
  if (file.starts_with("\xEF\xBB\xBF")) file.remove_prefix(3);
  std::vector<JobLine> lines;
  for (int number = 1; !file.empty(); ++number) {
    const auto end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_blank(line)) lines.push_back({number, sha256_of(line), parse_line(line)});
  }
  refuse_repetitions(lines);
  return lines;
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
