#include "decode/methods/dex.h"

#include <pthread.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <exception>
#include <thread>

#include "common/base/allowed_cores.h"
#include "common/base/error.h"
#include "common/base/start_thread.h"
#include "common/comm/transport.h"
#include "common/model/cpu_engine.h"
#include "decode/explorer/explorer.h"
#include "decode/explorer/transport_links.h"
#include "decode/session.h"

namespace dex {
namespace {

void bind_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(std::size_t(core), &set);
  require(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0, ExitCode::usage,
          "an explorer cannot be bound to core {}", core);
}

// Peers of a failed explorer end with Error(temporary); the cause is whichever error is not that.
void rethrow_cause(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr chosen;
  for (const auto& error : errors) {
    if (!error) continue;
    if (!chosen) chosen = error;
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      if (e.code() != ExitCode::temporary) chosen = error;
    } catch (...) {
      chosen = error;
    }
  }
  if (chosen) std::rethrow_exception(chosen);
}

class DexDecoder final : public Decoder {
 public:
  DexDecoder(const Model& model, const Adapters& adapters, ExplorePlan plan, int threads,
             std::vector<int> cores)
      : model_(model), plan_(std::move(plan)), cores_(std::move(cores)) {
    const int num_stages = model.depths.num_stages();
    plan_.policy.check(num_stages);
    for (int k = 0; k < num_stages; ++k)
      engines_.push_back(std::make_unique<CpuEngine>(model, StageShare{k, k + 1},
                                                     adapters.empty() ? nullptr : adapters[k].get(),
                                                     std::make_shared<ThreadPool>(threads)));
  }

  DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                        const OnToken& on_token) override {
    // before any thread starts: a bad prompt is the caller's error, not a lost peer's
    room_for(model_, prompt, limits);
    EventQueue events;
    events.add(
        {.kind = Event::Kind::submit, .prompt = {prompt.begin(), prompt.end()}, .limits = limits});
    events.add({.kind = Event::Kind::stop});
    return run(events, on_token);
  }

 private:
  DecodeResult run(EventQueue& events, const OnToken& on_token) {
    const std::size_t size = engines_.size();
    auto peers = local_transports(size);
    std::vector<std::exception_ptr> errors(size);
    DecodeResult result;
    const auto explore = [&](std::size_t k) {
      try {
        if (!cores_.empty()) bind_to_core(cores_[k % cores_.size()]);
        TransportLinks links(*peers[k], model_.config.hidden_size);
        Explorer explorer(model_, plan_, int(k), *engines_[k], links, links, clock_);
        if (k > 0) return explorer.run();
        explorer.lead(events, on_token,
                      [&](int, DecodeResult finished) { result = std::move(finished); });
      } catch (const std::exception& error) {
        errors[k] = std::current_exception();
        peers[k]->abort(error.what(), ExitCode::temporary);
      }
    };
    // Every explorer in a thread of its own: binding one to a core must not bind the caller.
    std::vector<std::thread> threads;
    threads.reserve(size);
    std::exception_ptr unborn;
    try {
      for (std::size_t k = 0; k < size; ++k)
        threads.push_back(start_thread(fmt::format("explorer {} of {}", k + 1, size),
                                       [&explore, k] { explore(k); }));
    } catch (const Error& error) {
      unborn = std::current_exception();
      peers[threads.size()]->abort(error.what(), error.code());  // those that are there wait for it
    }
    for (std::thread& thread : threads) thread.join();
    if (unborn) std::rethrow_exception(unborn);
    rethrow_cause(errors);
    return result;
  }

  const Model& model_;
  RealClock clock_;
  ExplorePlan plan_;
  std::vector<std::unique_ptr<StageEngine>> engines_;
  std::vector<int> cores_;
};

void add_options(CLI::App& command, ExploreOptions& o) {
  command
      .add_option("--expand", o.expand,
                  "Which rows are explored: full (the paper's lattice) or budget")
      ->capture_default_str();
  command.add_option("--rows", o.rows, "budget: new rows per round")->capture_default_str();
  command.add_option("--width", o.width, "budget: ranked tokens taken from each exit")
      ->capture_default_str();
  command.add_flag("--no-decs", o.no_decs,
                   "full: exits propose their best token even if a shallower one did");
  command.add_flag("--single-exit", o.single_exit, "full: only the first exit proposes");
  command.add_option(
      "--devices", o.devices,
      "One device per explorer, such as cpu:0,cpu:1 (default: the system places them)");
}

}  // namespace

LatticePolicy ExploreOptions::policy() const {
  require(expand == "full" || expand == "budget", ExitCode::usage,
          "--expand is \"{}\", wanted full or budget", expand);
  require(expand == "full" || (!no_decs && !single_exit), ExitCode::usage,
          "--no-decs and --single-exit need --expand full");
  return {.expand = expand == "full" ? Expand::full : Expand::budget,
          .rows = rows,
          .width = width,
          .decs = !no_decs,
          .single_exit = single_exit};
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

std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores,
                                     std::shared_ptr<const Proposer> drafts) {
  return std::make_unique<DexDecoder>(model, adapters,
                                      ExplorePlan{model.depths, policy, std::move(drafts)}, threads,
                                      std::move(cores));
}

Method dex_method(ExploreOptions defaults) {
  const auto o = std::make_shared<ExploreOptions>(std::move(defaults));
  return {.name = "dex",
          .summary = "depth exploration",
          .explores = true,
          .add_options = [o](CLI::App& command) { add_options(command, *o); },
          .check =
              [o](const DepthSet& depths) {
                o->policy().check(depths.num_stages());
                o->cores(depths.num_stages());
              },
          .make =
              [o](const Session& session) {
                const int stages = session.model().depths.num_stages();
                const auto cores = o->cores(stages);
                // a device is one core
                const int threads = cores.empty() ? std::max(1, session.threads() / stages) : 1;
                return dex_decoder(session.model(), session.adapters(), o->policy(), threads,
                                   cores);
              }};
}

}  // namespace dex
