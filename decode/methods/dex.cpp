#include <pthread.h>
#include <sched.h>

#include <exception>
#include <thread>

#include "common/base/error.h"
#include "decode/decoder.h"
#include "decode/explorer/explorer.h"

namespace dex {
namespace {

void bind_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(std::size_t(core), &set);
  require(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0, ExitCode::usage,
          "an explorer cannot be bound to core {}", core);
}

class DexDecoder final : public Decoder {
 public:
  DexDecoder(const Model& model, const Adapters& adapters, LatticePolicy policy, int threads,
             std::vector<int> cores)
      : cores_(std::move(cores)) {
    policy.check(model.depths.num_stages());
    for (int k = 0; k < model.depths.num_stages(); ++k) {
      const Adapter* adapter = adapters.empty() ? nullptr : adapters[k].get();
      explorers_.push_back(std::make_unique<Explorer>(model, adapter, policy, k, threads));
    }
    room_check_ = [&model](auto prompt, const Limits& limits) { room_for(model, prompt, limits); };
  }

  DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                        const OnToken& on_token) override {
    // before any thread starts: a bad prompt is the caller's error, not a lost peer's
    room_check_(prompt, limits);
    const auto size = explorers_.size();
    auto peers = local_transports(int(size));
    std::vector<std::exception_ptr> errors(size);
    DecodeResult result;
    const auto explore = [&](std::size_t k) {
      try {
        if (!cores_.empty()) bind_to_core(cores_[k % cores_.size()]);
        auto own = explorers_[k]->generate(prompt, limits, *peers[k], on_token);
        if (k == 0) result = std::move(own);
      } catch (const std::exception& error) {
        errors[k] = std::current_exception();
        peers[k]->abort(error.what());
      }
    };
    // Every explorer in a thread of its own: binding one to a core must not bind the caller.
    std::vector<std::jthread> threads;
    for (std::size_t k = 0; k < size; ++k) threads.emplace_back(explore, k);
    threads.clear();
    rethrow_cause(errors);
    return result;
  }

 private:
  // Peers of a failed explorer end with Error(temporary); the cause is whichever error is not that.
  static void rethrow_cause(const std::vector<std::exception_ptr>& errors) {
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

  std::vector<std::unique_ptr<Explorer>> explorers_;
  std::vector<int> cores_;
  std::function<void(std::span<const Token>, const Limits&)> room_check_;
};

}  // namespace

std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores) {
  return std::make_unique<DexDecoder>(model, adapters, policy, threads, std::move(cores));
}

}  // namespace dex
