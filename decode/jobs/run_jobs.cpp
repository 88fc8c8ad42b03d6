#include "decode/jobs/run_jobs.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/peak_memory.h"
#include "common/base/progress.h"
#include "decode/jobs/job.h"
#include "decode/report.h"
#include "decode/verify.h"

namespace dex {
namespace {

using Json = nlohmann::json;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Of the line number and its custom_id: the same file gives the same ids wherever it runs.
std::string job_hash(int line, const std::string& custom_id) {
  return sha256_of(fmt::format("{}\n{}", line, custom_id)).substr(0, 24);
}

Json answer_row(const JobLine& line, const std::string& custom_id, int status, Json body,
                Json error) {
  const std::string hash = job_hash(line.number, custom_id);
  return {{"id", "batch_req_" + hash},
          {"custom_id", custom_id.empty() ? Json(nullptr) : Json(custom_id)},
          {"response",
           {{"status_code", status}, {"request_id", "req_" + hash}, {"body", std::move(body)}}},
          {"error", std::move(error)}};
}

Json error_row(const JobLine& line, const std::string& custom_id, const std::string& reason) {
  return answer_row(
      line, custom_id, 400, nullptr,
      {{"code", "invalid_request"}, {"message", fmt::format("line {}: {}", line.number, reason)}});
}

Json completion(const Session& session, const Job& job, std::size_t prompt_tokens,
                const DecodeResult& result) {
  const std::string text = session.tokenizer().decode(result.text_ids(), false);
  Json choice = {{"index", 0},
                 {"finish_reason", result.finish_reason},
                 {"token_ids", result.ids()},
                 {"stop_reason", result.stop_id ? Json(*result.stop_id) : Json(nullptr)}};
  if (job.prompt)
    choice["text"] = text;
  else
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  return {{"object", job.prompt ? "text_completion" : "chat.completion"},
          {"choices", {choice}},
          {"usage",
           {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", result.tokens.size()},
            {"total_tokens", prompt_tokens + result.tokens.size()}}}};
}

class JobsRun {
 public:
  JobsRun(const Session& session, const Method& method, const RunJobsOptions& options)
      : session_(session),
        options_(options),
        decoder_(method.make(session)),
        plain_(options.verify ? session.plain() : nullptr),
        depths_(method.depths(session.model().depths)),
        tally_(depths_),
        plain_tally_(DepthSet({}, session.model().config.num_layers)),
        name_(method.name) {}

  int run() {
    check_output();
    const auto lines = parse_jobs(read_file(options_.input));
    require(!lines.empty(), ExitCode::usage, "{}: no job lines", options_.input.string());
    {
      Progress progress("decode", std::int64_t(lines.size()), "jobs");
      for (const JobLine& line : lines) {
        answer(line);
        progress.update(++done_, fmt::format("{:.1f} tok/s", tally_.tokens_per_second()));
      }
    }
    write_file(options_.output, answers_);
    write_file(options_.output.string() + ".stats.jsonl", stats_);
    report();
    return bad_ > 0 ? int(ExitCode::bad_rows) : 0;
  }

 private:
  // Before hours of decoding, not after them.
  void check_output() const {
    const auto& out = options_.output;
    std::error_code none;
    require(!std::filesystem::equivalent(out, options_.input, none), ExitCode::usage,
            "{}: --output is --input, which it would replace", out.string());
    require(!std::filesystem::is_directory(out), ExitCode::usage,
            "{}: --output is a directory, wanted a file", out.string());
    const auto parent = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
    require(std::filesystem::is_directory(parent), ExitCode::usage,
            "{}: no such directory for --output", parent.string());
    require(access(parent.c_str(), W_OK) == 0, ExitCode::io, "{}: --output cannot be written there",
            parent.string());
  }

  void answer(const JobLine& line) {
    if (const auto* bad = std::get_if<BadJob>(&line.content))
      return refuse(line, bad->custom_id, bad->reason);
    const Job& job = std::get<Job>(line.content);
    std::vector<Token> prompt;
    Limits limits = options_.limits;
    if (job.max_tokens) limits.max_tokens = *job.max_tokens;
    try {
      prompt = job.prompt ? session_.prompt_ids(*job.prompt, options_.parse_special)
                          : session_.chat_ids(job.messages);
      room_for(session_.model(), prompt, limits);
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
      return refuse(line, job.custom_id, error.what());
    }
    const DecodeResult result = decoder_->generate(prompt, limits, {});
    if (plain_) verify(line, prompt, limits, result);
    tally_.add(result);
    answers_ += line_of(answer_row(line, job.custom_id, 200,
                                   completion(session_, job, prompt.size(), result), nullptr));
    DecodeTally one(depths_);
    one.add(result);
    Json stats = one.json();
    stats["custom_id"] = job.custom_id;
    stats["line"] = line.number;
    stats_ += line_of(stats);
  }

  void refuse(const JobLine& line, const std::string& custom_id, const std::string& reason) {
    ++bad_;
    answers_ += line_of(error_row(line, custom_id, reason));
  }

  void verify(const JobLine& line, std::span<const Token> prompt, const Limits& limits,
              const DecodeResult& result) {
    const DecodeResult plain = plain_->generate(prompt, limits, {});
    plain_tally_.add(plain);
    const auto difference = first_difference(plain, result);
    require(!difference, ExitCode::bug, "{} line {}: --verify: {}", options_.input.string(),
            line.number, difference.value_or(""));
  }

  void report() const {
    std::fputs(("\n" + tally_.table()).c_str(), stderr);
    Json line = {{"command", "decode"},
                 {"output", options_.output.string()},
                 {"answered", done_ - bad_},
                 {"bad_lines", bad_}};
    line["counts"] = tally_.json();
    if (plain_) {
      std::fputs(("\n" + speed_table(plain_tally_, tally_, name_)).c_str(), stderr);
      spdlog::info("--verify: {} ids and the bits of their final logits equal plain decoding's",
                   tally_.tokens());
      line["verified"] = true;
      line["plain"] = plain_tally_.json();
    }
    line["peak_memory_bytes"] = peak_memory_bytes();
    spdlog::info("resident memory: {:.0f} MB at most", double(peak_memory_bytes()) / 1e6);
    std::cout << line.dump() << std::endl;
  }

  const Session& session_;
  const RunJobsOptions& options_;
  std::unique_ptr<Decoder> decoder_, plain_;
  DepthSet depths_;
  DecodeTally tally_, plain_tally_;
  std::string name_;
  std::string answers_, stats_;
  std::int64_t done_ = 0, bad_ = 0;
};

}  // namespace

int run_jobs(const Session& session, const Method& method, const RunJobsOptions& options) {
  return JobsRun(session, method, options).run();
}

}  // namespace dex
