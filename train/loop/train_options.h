// What a training run is asked for.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dex {

struct TrainOptions {
  std::filesystem::path model, data, out;
  std::filesystem::path cache_states;  // empty: none
  std::string depths;
  int epochs = 2;
  std::int64_t steps = 0;  // 0: as many as the epochs have
  int batch_size = 16, micro_batch = 4;
  std::int64_t micro_tokens = 4096;
  double learning_rate = 1e-3, warmup = 0.06, weight_decay = 0, tau = 1;
  std::int64_t width = 0;  // of the adapters; 0: twice the hidden size
  std::string init = "paper", dtype = "bf16", device = "auto";
  std::int64_t ridge_tokens = 13000;
  std::uint64_t seed = 0;
  int threads = 0;  // 0: one per core
  std::int64_t save_every = 100, stop_after = 0, eval_every = 0;
  int keep = 3, eval_samples = 24;
  std::string on_nan = "stop";  // or "skip"
  int nan_limit = 5;            // steps skipped in a row that end the run
  bool resume = false, restart = false, allow_unlocked = false, deterministic = false;
  // ranks that share a model: 0 is the largest divisor of their number that is at most the depths'
  int stages = 0;
  double init_timeout = 300, step_timeout = 100;  // seconds
  bool dry_run = false;
  int world_size = 0;    // of the plan of a dry run; 0: as many as there are
  double teraflops = 0;  // of a rank, for the plan; 0: measured

  std::int64_t width_for(std::int64_t hidden) const { return width > 0 ? width : 2 * hidden; }
};

// Error(usage) naming the option, the value and what is wanted.
void check(const TrainOptions& options);
// Error(usage): what so many cannot do
void check_for_ranks(const TrainOptions& options, int world);

// What two runs must share to be one run interrupted: everything the weights depend on but the
// number of threads.
nlohmann::json identity_of(const TrainOptions& options);

}  // namespace dex
