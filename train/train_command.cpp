// dex train: adapters for a frozen model, from prepared data.
#include "train/train_command.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <thread>

#include "common/command_line.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/log.h"
#include "data/token_shards.h"
#include "train/stop_signal.h"
#include "train/train_loop.h"

namespace dex {
namespace {

// Held-out samples spread over the whole split, so that a few stand for all.
std::vector<Sample> held_out_samples(const TokenShards& shards, int wanted) {
  std::vector<Sample> samples;
  const std::size_t count = std::min(shards.size(), static_cast<std::size_t>(wanted));
  for (std::size_t i = 0; i < count; ++i) samples.push_back(shards.sample(i * shards.size() / count));
  return samples;
}

TrainingData open_data(const TrainOptions& options, const Model& model) {
  const auto shards = std::make_shared<TokenShards>(TokenShards::open(options.data, "train"));
  shards->require_made_for(model.tokenizer ? model.tokenizer->digest() : "", model.config.vocab_size);
  return {.size = shards->size(), .sample = [shards](std::uint64_t index) { return shards->sample(index); },
          .held_out = held_out_samples(TokenShards::open(options.data, "held_out"), options.eval_samples),
          .digest = shards->digest()};
}

void prepare_torch(const TrainOptions& options) {
  at::set_num_threads(options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  if (!options.deterministic) return;
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

int run(const TrainOptions& options) {
  // First of all, and to the end of the process: a late signal does not turn a finished run into a killed one.
  static const auto& stop = *new StopSignal;
  check(options);
  prepare_torch(options);
  const ModelConfig config = read_model_config(options.model);
  const Model model = Model::load(options.model, DepthSet::parse(options.depths, config.num_layers),
                                  parse_dtype(options.dtype), WeightLayout::rows);
  const TrainOutcome outcome = TrainLoop(options, model, open_data(options, model), [] { return stop.raised(); }).run();
  std::cout << outcome.summary.dump() << std::endl;
  return static_cast<int>(outcome.finished ? ExitCode::done : ExitCode::temporary);
}

void add_options(CLI::App& c, TrainOptions& o) {
  c.add_option("--model", o.model, "Model directory")->required();
  c.add_option("--data", o.data, "Data set that dex prepare left")->required();
  c.add_option("--depths", o.depths, "Depths that get an adapter, such as 10,20")->required();
  c.add_option("--out", o.out, "Directory for adapters, checkpoints and metrics")->required();
  const auto number = [&c](const char* name, auto& value, const char* text) { c.add_option(name, value, text)->capture_default_str(); };
  number("--epochs", o.epochs, "Passes over the data");
  number("--steps", o.steps, "Steps instead of epochs; 0: epochs count");
  number("--batch-size", o.batch_size, "Samples of a step");
  number("--micro-batch", o.micro_batch, "Samples that are in memory at once");
  number("--lr", o.learning_rate, "Highest learning rate");
  number("--warmup", o.warmup, "Share of the steps in which the rate rises; then it falls to 0");
  number("--weight-decay", o.weight_decay, "Of AdamW");
  number("--tau", o.tau, "Temperature of the distillation");
  number("--width", o.width, "Inner size of an adapter; 0: twice the hidden size");
  number("--init", o.init, "Start: paper (alpha 1e-3) or ridge (closed form)");
  number("--ridge-tokens", o.ridge_tokens, "Tokens the closed form is solved on");
  number("--dtype", o.dtype, "Compute type of the frozen model: bf16 or f32; adapters are trained in f32");
  c.add_option("--seed", o.seed, "Of start and sample order")->check(CLI::NonNegativeNumber)->capture_default_str();
  number("--threads", o.threads, "0: one per core");
  number("--save-every", o.save_every, "Steps between checkpoints; 0: at the end only");
  number("--keep", o.keep, "Checkpoints that stay");
  number("--stop-after", o.stop_after, "Stop after this step as an interruption would, after saving; 0: never");
  number("--eval-every", o.eval_every, "Steps between evaluations; 0: before and after training only");
  number("--eval-samples", o.eval_samples, "Held-out samples to evaluate on; 0: none");
  c.add_flag("--resume", o.resume, "Go on after the newest whole checkpoint in --out, if there is one");
  c.add_flag("--deterministic", o.deterministic, "Refuse operators whose result may differ between runs");
}

}  // namespace

void add_train_command(CLI::App& program, std::function<int()>& chosen) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App& c = *program.add_subcommand("train", "Train inducing adapters for a frozen model");
  add_options(c, *options);
  c.callback([options, &c, &chosen] {
    chosen = [options, &c] {
      spdlog::info("train {}", command_line_of(c));
      return run(*options);
    };
  });
}

}  // namespace dex
