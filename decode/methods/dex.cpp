#include "decode/methods/dex.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <utility>

#include "common/base/allowed_cores.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/explore/lookup_proposer.h"
#include "common/model/cpu_engine.h"
#include "decode/methods/local_explorers.h"
#include "decode/methods/round_costs.h"
#include "decode/session.h"

namespace dex {
namespace {

std::vector<std::unique_ptr<StageEngine>> stage_engines(const Model& model,
                                                        const Adapters& adapters, int threads) {
  std::vector<std::unique_ptr<StageEngine>> engines;
  for (int k = 0; k < model.depths.num_stages(); ++k)
    engines.push_back(std::make_unique<CpuEngine>(model, StageShare{k, k + 1},
                                                  adapters.empty() ? nullptr : adapters[k].get(),
                                                  std::make_shared<ThreadPool>(threads)));
  return engines;
}

// Those that mean exploration alone: given, they choose it.
void add_own_options(CLI::App& command, ExploreOptions& o) {
  CLI::Option* const own[] = {
      command
          .add_option("--expand", o.expand,
                      "Which rows are explored: full (the paper's lattice) or budget")
          ->capture_default_str(),
      command.add_option("--width", o.width, "budget: ranked tokens taken from each exit")
          ->capture_default_str(),
      command.add_flag("--no-decs", o.no_decs,
                       "full: exits propose their best token even if a shallower one did"),
      command.add_flag("--single-exit", o.single_exit, "full: only the first exit proposes"),
      command
          .add_option("--head", o.head,
                      "Who reads the model's head: shared (each explorer a part of it, for all "
                      "exits), whole (each all of it), or auto: shared where it outweighs a "
                      "quarter of a stage")
          ->capture_default_str(),
      command.add_option(
          "--devices", o.devices,
          "One device per explorer, such as cpu:0,cpu:1 (default: the system places them)")};
  for (CLI::Option* option : own)
    option->each([&o, name = option->get_name()](const std::string&) {
      if (o.asked_by.empty()) o.asked_by = name;
    });
}

void add_options(CLI::App& command, ExploreOptions& o) {
  add_own_options(command, o);
  command
      .add_option("--rows", o.rows,
                  "budget, lookup: new rows per round, or auto: those worth their time here")
      ->capture_default_str();
  command
      .add_option("--lookup", o.lookup,
                  "budget, lookup: tokens of a block drafted from the text itself, at most (0: "
                  "none)")
      ->default_str("8");
  command.add_option(
      "--costs", o.costs,
      "--rows auto: a file of what rounds cost, read, and added to where this one is not in it "
      "(default: costs.json in the user's cache folder)");
}

bool shares_head(const ExploreOptions& o, const Model& model) {
  return shares_head(parse_head_use(o.head), model.config, model.vocab, model.depths.num_stages());
}

std::shared_ptr<const RowCosts> costs_of(const ExploreOptions& o, const Session& session,
                                         const std::vector<std::unique_ptr<StageEngine>>& engines) {
  const Model& model = session.model();
  return round_costs(o, session, engines, "dex " + model.depths.text(), shares_head(o, model));
}

// Half of the exits are taken for right.
std::optional<double> estimate(const ExploreOptions& o, const Session& session) {
  const int stages = session.model().depths.num_stages();
  if (!session.has_adapters() || !o.auto_rows()) return std::nullopt;
  const auto engines =
      stage_engines(session.model(), session.adapters(), std::max(1, session.threads() / stages));
  return estimated_seconds(*costs_of(o, session, engines), (stages + 1) / 2.0, o.lookup != 0);
}

}  // namespace

bool ExploreOptions::auto_rows() const { return rows == "auto" && expand == "budget"; }

int ExploreOptions::most_rows() const {
  if (rows == "auto") return kMostAutoRows;
  int value = 0;
  const char* end = rows.data() + rows.size();
  const bool number = std::from_chars(rows.data(), end, value).ptr == end && !rows.empty();
  require(number, ExitCode::usage, "--rows is \"{}\", wanted a number or auto", rows);
  return value;
}

LatticePolicy ExploreOptions::policy() const {
  require(expand == "full" || expand == "budget", ExitCode::usage,
          "--expand is \"{}\", wanted full or budget", expand);
  const bool full = expand == "full";
  require(full || (!no_decs && !single_exit), ExitCode::usage,
          "--no-decs and --single-exit need --expand full");
  require(!full || lookup.value_or(0) == 0, ExitCode::usage,
          "--lookup {} needs --expand budget: drafts compete for a budget of rows",
          lookup.value_or(0));
  return {.expand = full ? Expand::full : Expand::budget,
          .rows = most_rows(),
          .width = width,
          .lookup = full ? 0 : lookup.value_or(kLookup),
          .decs = !no_decs,
          .single_exit = single_exit};
}

LatticePolicy ExploreOptions::lookup_policy() const {
  return {.rows = most_rows(), .width = 1, .lookup = lookup.value_or(kLookup)};
}

std::vector<int> ExploreOptions::cores(int num_stages) const {
  std::vector<int> cores;
  if (devices.empty() || devices == "cpu") return cores;
  for (std::size_t at = 0; at <= devices.size();) {
    const auto end = std::min(devices.find(',', at), devices.size());
    const std::string one = devices.substr(at, end - at);
    int core = -1;
    const bool cpu = one.starts_with("cpu:") &&
                     std::from_chars(one.data() + 4, one.data() + one.size(), core).ptr ==
                         one.data() + one.size();
    require(cpu && may_run_on(core), ExitCode::usage,
            "--devices {} names \"{}\", wanted cpu:N, N a core that this process may run on",
            devices, one);
    cores.push_back(core);
    at = end + 1;
  }
  require(int(cores.size()) == num_stages, ExitCode::usage,
          "--devices names {} devices, wanted one for each of the {} explorers", cores.size(),
          num_stages);
  return cores;
}

DraftMaker drafts_of(const LatticePolicy& policy) {
  if (policy.lookup == 0) return nullptr;
  return [length = policy.lookup, rows = policy.rows] { return lookup_proposer(length, rows); };
}

std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores,
                                     DraftMaker drafts, HeadUse head) {
  if (!drafts) drafts = drafts_of(policy);
  const bool shared = shares_head(head, model.config, model.vocab, model.depths.num_stages());
  return local_explorers(model,
                         ExplorePlan{model.depths, std::move(policy), std::move(drafts), shared},
                         stage_engines(model, adapters, threads), std::move(cores));
}

Method dex_method(ExploreOptions defaults) {
  return dex_method(std::make_shared<ExploreOptions>(std::move(defaults)));
}

Method dex_method(std::shared_ptr<ExploreOptions> o) {
  return {.name = "dex",
          .summary = "depth exploration",
          .explores = true,
          .add_options = [o](CLI::App& command) { add_options(command, *o); },
          .check =
              [o](const DepthSet& depths) {
                o->policy().check(depths.num_stages());
                parse_head_use(o->head);
                o->cores(depths.num_stages());
              },
          .make =
              [o](const Session& session) {
                const Model& model = session.model();
                const int stages = model.depths.num_stages();
                const auto cores = o->cores(stages);
                // a device is one core
                const int threads = cores.empty() ? std::max(1, session.threads() / stages) : 1;
                LatticePolicy policy = o->policy();
                auto engines = stage_engines(model, session.adapters(), threads);
                const bool shared = shares_head(*o, model);
                if (shared)
                  spdlog::info("the explorers share the head: each reads its ids for all exits");
                if (o->auto_rows()) policy.costs = costs_of(*o, session, engines);
                auto drafts = drafts_of(policy);
                return local_explorers(
                    model, ExplorePlan{model.depths, std::move(policy), std::move(drafts), shared},
                    std::move(engines), cores);
              },
          .asked_by = [o] { return o->asked_by; },
          .estimate = [o](const Session& session) { return estimate(*o, session); }};
}

}  // namespace dex
