#include "decode/methods/local_explorers.h"

#include <pthread.h>
#include <sched.h>

#include <exception>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/start_thread.h"
#include "common/comm/transport.h"
#include "decode/explorer/transport_links.h"

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

class LocalExplorers final : public Decoder {
 public:
  LocalExplorers(const ModelInfo& model, ExplorePlan plan,
                 std::vector<std::unique_ptr<StageEngine>> engines, std::vector<int> cores)
      : model_(model),
        plan_(std::move(plan)),
        engines_(std::move(engines)),
        cores_(std::move(cores)) {
    plan_.policy.check(plan_.depths.num_stages());
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

  const ModelInfo& model_;
  RealClock clock_;
  ExplorePlan plan_;
  std::vector<std::unique_ptr<StageEngine>> engines_;
  std::vector<int> cores_;
};

}  // namespace

std::unique_ptr<Decoder> local_explorers(const ModelInfo& model, ExplorePlan plan,
                                         std::vector<std::unique_ptr<StageEngine>> engines,
                                         std::vector<int> cores) {
  return std::make_unique<LocalExplorers>(model, std::move(plan), std::move(engines),
                                          std::move(cores));
}

}  // namespace dex
