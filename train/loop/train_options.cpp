#include "train/loop/train_options.h"

#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace dex {
namespace {

template <typename T>
void at_least(const char* option, T value, T least) {
  require(value >= least, ExitCode::usage, "{} is {}, wanted at least {}", option, value, least);
}

void one_of(const char* option, const std::string& value, const std::string& a,
            const std::string& b) {
  require(value == a || value == b, ExitCode::usage, "{} is \"{}\", wanted {} or {}", option, value,
          a, b);
}

}  // namespace

void check(const TrainOptions& o) {
  at_least("--epochs", o.epochs, 1);
  at_least<std::int64_t>("--steps", o.steps, 0);
  at_least("--batch-size", o.batch_size, 1);
  at_least("--micro-batch", o.micro_batch, 1);
  at_least<std::int64_t>("--micro-tokens", o.micro_tokens, 1);
  require(o.width >= 0 && o.width <= 1 << 20, ExitCode::usage, "--width is {}, wanted 0 .. {}",
          o.width, 1 << 20);
  require(o.threads >= 0 && o.threads <= 1024, ExitCode::usage, "--threads is {}, wanted 0 .. 1024",
          o.threads);
  require(!o.resume || !o.restart, ExitCode::usage,
          "--resume goes on and --restart starts anew, wanted one of them");
  at_least("--keep", o.keep, 1);
  at_least("--eval-samples", o.eval_samples, 0);
  at_least<std::int64_t>("--ridge-tokens", o.ridge_tokens, 1);
  for (const auto& [name, value] : {std::pair{"--save-every", o.save_every},
                                    {"--stop-after", o.stop_after},
                                    {"--eval-every", o.eval_every}})
    at_least<std::int64_t>(name, value, 0);
  at_least("--stages", o.stages, 0);
  for (const auto& [name, value] :
       {std::pair{"--init-timeout", o.init_timeout}, {"--step-timeout", o.step_timeout}})
    require(value > 0 && value < 1e6, ExitCode::usage, "{} is {}, wanted seconds over 0", name,
            value);
  require(o.dry_run || (o.world_size == 0 && o.teraflops == 0), ExitCode::usage,
          "--world-size and --teraflops are for --dry-run only");
  require(o.world_size >= 0 && o.world_size <= 1 << 20, ExitCode::usage,
          "--world-size is {}, wanted 1 .. {}", o.world_size, 1 << 20);
  require(o.teraflops >= 0 && o.teraflops < 1e6, ExitCode::usage,
          "--teraflops is {}, wanted 0 or more", o.teraflops);
  require(o.learning_rate > 0 && o.learning_rate < 1e3, ExitCode::usage,
          "--lr is {}, wanted a rate over 0 and under 1000", o.learning_rate);
  require(o.warmup >= 0 && o.warmup <= 1, ExitCode::usage, "--warmup is {}, wanted a share in 0..1",
          o.warmup);
  require(o.weight_decay >= 0 && o.weight_decay < 1e3, ExitCode::usage,
          "--weight-decay is {}, wanted 0 or more", o.weight_decay);
  require(o.tau > 0 && o.tau < 1e3, ExitCode::usage, "--tau is {}, wanted a temperature over 0",
          o.tau);
  one_of("--init", o.init, "paper", "ridge");
  one_of("--dtype", o.dtype, "f32", "bf16");
  one_of("--on-nan", o.on_nan, "stop", "skip");
  require(o.device == "auto" || o.device == "cpu" || o.device == "cuda", ExitCode::usage,
          "--device is \"{}\", wanted auto, cpu or cuda", o.device);
  at_least("--nan-limit", o.nan_limit, 1);
  require(o.init != "ridge" || o.width == 0, ExitCode::usage,
          "--width is {} with --init ridge, which needs twice the hidden size, the default",
          o.width);
}

nlohmann::json identity_of(const TrainOptions& o) {
  return {{"depths", o.depths},
          {"epochs", o.steps > 0 ? 0 : o.epochs},
          {"steps", o.steps},
          {"batch_size", o.batch_size},
          {"micro_batch", o.micro_batch},
          {"micro_tokens", o.micro_tokens},
          {"learning_rate", o.learning_rate},
          {"warmup", o.warmup},
          {"weight_decay", o.weight_decay},
          {"tau", o.tau},
          {"width", o.width},
          {"init", o.init},
          {"dtype", o.dtype},
          {"ridge_tokens", o.init == "ridge" ? o.ridge_tokens : 0},
          {"seed", o.seed}};
}

void check_for_ranks(const TrainOptions& o, int world) {
  require(o.cache_states.empty() || world == 1, ExitCode::usage,
          "--cache-states is for one rank, and there are {}", world);
}

}  // namespace dex
