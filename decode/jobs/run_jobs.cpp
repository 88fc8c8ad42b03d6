#include "decode/jobs/run_jobs.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/base/peak_memory.h"
#include "common/base/progress.h"
#include "common/model/not_numbers.h"
#include "decode/jobs/answer_row.h"
#include "decode/jobs/job_prompt.h"
#include "decode/report.h"
#include "decode/verify.h"
#include "kernels/numbers_version.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path stats_file(const fs::path& output) { return output.string() + ".stats.jsonl"; }

// Unix time in seconds at which a file was last written.
std::int64_t written_at(const fs::path& file) {
  const auto since = fs::file_time_type::clock::to_sys(fs::last_write_time(file));
  return std::chrono::floor<std::chrono::seconds>(since).time_since_epoch().count();
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
    check_output(options_);
    const auto lines = parse_jobs(read_file(options_.input));
    require(!lines.empty(), ExitCode::usage, "{}: no job lines", options_.input.string());
    make_template(lines);
    frame_ = {session_.model_name(), written_at(options_.input)};
    {
      Progress progress("decode", std::int64_t(lines.size()), "jobs");
      for (const JobLine& line : lines) {
        answer(line);
        progress.update(++done_, fmt::format("{:.1f} tok/s", tally_.tokens_per_second()));
      }
    }
    write_file(options_.output, answers_);
    write_file(stats_file(options_.output), stats_);
    report();
    return bad_ > 0 ? int(ExitCode::bad_rows) : 0;
  }

 private:
  // Where there is none, or no Python to render it, no conversation can be answered.
  void make_template(const std::vector<JobLine>& lines) const {
    for (const JobLine& line : lines)
      if (const auto* job = std::get_if<Job>(&line.content); job && !job->messages.empty())
        return void(session_.chat_template());
  }

  void answer(const JobLine& line) {
    if (const auto* bad = std::get_if<BadJob>(&line.content)) return refuse(line, bad->reason);
    const Job& job = std::get<Job>(line.content);
    std::vector<Token> prompt;
    Limits limits = options_.limits;
    if (job.max_tokens) limits.max_tokens = *job.max_tokens;
    try {
      prompt = prompt_of(job, session_, options_.parse_special);
      room_for(session_.model(), prompt, limits);
    } catch (const Error& error) {
      // temporary: a conversation that the template's process died of
      if (error.code() != ExitCode::usage && error.code() != ExitCode::temporary) throw;
      return refuse(line, error.what());
    }
    try {
      const DecodeResult result = decoder_->generate(prompt, limits, {});
      if (plain_) verify(line, prompt, limits, result);
      keep(line, prompt.size(), result);
    } catch (const NotNumbers& error) {
      refuse(line, error.what());
    }
  }

  void keep(const JobLine& line, std::size_t prompt_tokens, const DecodeResult& result) {
    // ids in, ids out: a model without a tokenizer has no text
    const Tokenizer* tokenizer = session_.model().tokenizer.get();
    const std::string text = tokenizer ? tokenizer->decode(result.text_ids(), false) : "";
    answers_ += answer_row(line, frame_, prompt_tokens, result, text);
    tally_.add(result);
    DecodeTally one(depths_);
    one.add(result);
    Json stats = one.json();
    stats["custom_id"] = custom_id_of(line);
    stats["line"] = line.number;
    stats[kNumbersField] = kNumbersVersion;
    stats_ += line_of(stats);
  }

  void refuse(const JobLine& line, const std::string& reason) {
    ++bad_;
    answers_ += error_row(line, reason);
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
    show(tally_.table());
    Json line = {{"command", "decode"},
                 {"method", name_},
                 {"output", options_.output.string()},
                 {"answered", done_ - bad_},
                 {"bad_lines", bad_}};
    line["counts"] = tally_.json();
    if (plain_) {
      show(speed_table(plain_tally_, tally_, name_));
      spdlog::info("--verify: {} ids and the bits of their final logits equal plain decoding's",
                   tally_.tokens());
      line["verified"] = true;
      line["plain"] = plain_tally_.json();
    }
    line["peak_memory_bytes"] = peak_memory_bytes();
    spdlog::info("resident memory: {:.0f} MB at most", double(peak_memory_bytes()) / 1e6);
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }

  const Session& session_;
  const RunJobsOptions& options_;
  std::unique_ptr<Decoder> decoder_, plain_;
  DepthSet depths_;
  DecodeTally tally_, plain_tally_;
  std::string name_;
  AnswerFrame frame_;
  std::string answers_, stats_;
  std::int64_t done_ = 0, bad_ = 0;
};

}  // namespace

void check_output(const RunJobsOptions& options) {
  const fs::path& out = options.output;
  std::error_code none;
  require(!fs::equivalent(out, options.input, none), ExitCode::usage,
          "{}: --output is --input, which it would replace", out.string());
  for (const fs::path& file : {out, stats_file(out)})
    require(!fs::exists(file) || fs::is_regular_file(file), ExitCode::usage,
            "{}: is a {}; --output wants a file", file.string(),
            fs::is_directory(file) ? "directory" : "device, a pipe or the like");
  const auto parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  require(fs::is_directory(parent), ExitCode::usage, "{}: no such directory for --output",
          parent.string());
  for (const fs::path& file : {out, stats_file(out)})
    require(options.overwrite || !fs::exists(fs::symlink_status(file)), ExitCode::usage,
            "{}: is there already; --overwrite replaces it", file.string());
  require(access(parent.c_str(), W_OK) == 0, ExitCode::io, "{}: --output cannot be written there",
          parent.string());
}

int run_jobs(const Session& session, const Method& method, const RunJobsOptions& options) {
  return JobsRun(session, method, options).run();
}

}  // namespace dex
