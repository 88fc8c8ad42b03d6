// dex bench: how fast plain and explored decoding are on this machine.
#include "launch/program/bench_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/base/command_line.h"
#include "common/base/cpu_name.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "decode/bench/bench_report.h"
#include "decode/jobs/job_prompt.h"
#include "launch/program/session_options.h"

namespace dex {
namespace {

struct BenchOptions {
  SessionOptions session;
  Methods methods;
  BenchPlan plan;
  std::filesystem::path prompts, json;
};

BenchSetting setting_of(const BenchOptions& o, const Session& session) {
  return {.model = o.session.model.string(),
          .dtype = o.session.dtype,
          .cpu = cpu_name(),
          .threads = session.threads(),
          .weight_bytes = session.model().pass_bytes(),
          .depths = session.model().depths};
}

// As far as can be told before the measurements, which are lost where it cannot.
bool can_be_written(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  return !fs::is_directory(file) &&
         fs::is_directory(file.has_parent_path() ? file.parent_path() : ".");
}

// As far as can be told before the model is loaded.
void check(const BenchOptions& o) {
  require(o.prompts.empty() || o.plan.context == 0, ExitCode::usage,
          "--prompts and --context {} are given, wanted one of them", o.plan.context);
  require(o.json.empty() || can_be_written(o.json), ExitCode::usage,
          "--json is {}, wanted a file in a directory that exists", o.json.string());
  BenchPlan plan = o.plan;
  if (plan.methods.empty()) plan.methods = {o.methods.reference().name};
  plan.check(read_model_config(o.session.model), o.methods);
}

int run(BenchOptions o) {
  check(o);
  const auto jobs = o.prompts.empty() ? std::vector<JobLine>() : read_jobs(o.prompts, 0);
  const Session session(o.session, [&](const DepthSet& d) { o.methods.check(d); });
  for (const JobLine& line : jobs)
    o.plan.prompts.push_back(prompt_of(std::get<Job>(line.content), session, false));
  if (o.plan.methods.empty()) {
    o.plan.methods = {o.methods.reference().name};
    for (const Method& method : o.methods.all())
      if (method.explores && session.model().depths.num_stages() > 1)
        o.plan.methods.push_back(method.name);
  }

  const BenchResult result = run_bench(session, o.methods, o.plan);
  const BenchSetting setting = setting_of(o, session);
  std::cout << bench_table(result, setting) << "\n" << std::flush;
  if (!o.json.empty()) write_file(o.json, bench_lines(result, setting));
  if (result.difference) spdlog::error("the methods' tokens differ: {}", *result.difference);
  std::cout << bench_summary(result, setting)
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            << std::endl;
  return int(result.difference ? ExitCode::bug : ExitCode::done);
}

}  // namespace

void add_bench_command(CLI::App& program, std::function<int()>& chosen) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App& c = *program.add_subcommand(
      "bench", "Measure the speeds of plain and explored decoding, loading not counted");
  add_session_options(c, o->session);
  c.add_option("--methods", o->plan.methods,
               o->methods.described() +
                   " (default: plain decoding, and exploration when depths are explored)")
      ->delimiter(',');
  c.add_option("--prompt-tokens", o->plan.prompt_tokens,
               "Made-up tokens read up to the first one generated (0: do not measure)")
      ->capture_default_str();
  c.add_option("--tokens", o->plan.tokens, "Tokens generated (0: do not measure)")
      ->capture_default_str();
  c.add_option("--context", o->plan.context, "Made-up tokens already read when generating begins")
      ->capture_default_str();
  c.add_option("--prompts", o->prompts,
               "Job lines (OpenAI batch form) to generate after, in place of made-up tokens");
  c.add_option("--repeats", o->plan.repeats, "Counted runs of each measurement")
      ->capture_default_str();
  o->methods.add_options(c);
  c.add_option("--json", o->json,
               "Write a JSON line per measurement, fields named as llama-bench does");
  c.callback([o, &c, &chosen] {
    chosen = [o, &c] {
      spdlog::info("bench {}", command_line_of(c));
      return run(*o);
    };
  });
}

}  // namespace dex
