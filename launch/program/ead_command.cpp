// dex ead: decode prompts plainly, then read every asked depth over the texts.
#include "launch/program/ead_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "decode/ead/ead_files.h"
#include "decode/jobs/job_prompt.h"
#include "decode/report.h"
#include "launch/program/session_options.h"

namespace dex {
namespace {

struct EadOptions {
  SessionOptions session;
  std::filesystem::path prompts, out;
  int max_tokens = 128, limit = 0;
};

std::string every_layer(int num_layers) {
  std::string depths;
  for (int depth = 1; depth < num_layers; ++depth)
    depths += fmt::format("{}{}", depths.empty() ? "" : ",", depth);
  return depths;
}

int run(EadOptions o) {
  require(o.max_tokens >= 1, ExitCode::usage, "--max-tokens is {}, wanted at least 1",
          o.max_tokens);
  claim_ead_directory(o.out);
  const auto lines = read_jobs(o.prompts, o.limit);
  if (o.session.depths.empty() && o.session.adapters.empty())
    o.session.depths = every_layer(read_model_config(o.session.model).num_layers);
  const Session session(o.session);
  make_directory(o.out);  // that it cannot be made is known before the work
  const auto plain = session.plain();
  EadReader reader(session);
  std::vector<std::string> names;
  {
    Progress progress("ead", std::int64_t(lines.size()), "prompts");
    for (const JobLine& line : lines) {
      const Job& job = std::get<Job>(line.content);
      const auto prompt = prompt_of(job, session, false);
      const Limits limits{.max_tokens =
                              std::min(o.max_tokens, job.max_tokens.value_or(o.max_tokens))};
      reader.read(int(names.size()), prompt, plain->generate(prompt, limits, {}));
      names.push_back(job.custom_id.empty() ? fmt::format("line {}", line.number) : job.custom_id);
      progress.update(std::int64_t(names.size()));
    }
  }
  write_ead(o.out, session, session.model_name(), reader.readings(), names);
  nlohmann::json line = {{"command", "ead"},
                         {"out", o.out.string()},
                         {"generated_tokens", reader.readings().front().rows.size()}};
  for (const EadReading& reading : reader.readings()) {
    show(ead_table(reading, session.model().depths));
    const EadShares s = shares_of(reading, session.model().depths);
    line["readings"][reading.name] = {{"agreement", s.agreement},
                                      {"mean_first", s.mean_first},
                                      {"mean_stable", s.mean_stable},
                                      {"mean_hop", s.mean_hop},
                                      {"mean_hop_decs", s.mean_hop_decs},
                                      {"texts", s.texts},
                                      {"rounds", s.rounds}};
  }
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace

void add_ead_command(CLI::App& program, std::function<int()>& chosen) {
  auto o = std::make_shared<EadOptions>();
  CLI::App& c = *program.add_subcommand(
      "ead",
      "Measure at which depths tokens are ready (all layers, unless --depths or --adapters)");
  add_session_options(c, o->session);
  c.add_option("--prompts", o->prompts,
               "Job lines (OpenAI batch form); a bad line ends the measurement")
      ->required();
  c.add_option("--out", o->out, "Directory for ead.h5, summary.json and ead.json")->required();
  c.add_option("--max-tokens", o->max_tokens, "Tokens generated per prompt at most")
      ->capture_default_str();
  c.add_option("--limit", o->limit, "Prompts at most (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c.callback([o, &c, &chosen] {
    chosen = [o, &c] {
      spdlog::info("ead {}", command_line_of(c));
      return run(*o);
    };
  });
}

}  // namespace dex
