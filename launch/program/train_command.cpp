// dex train: adapters for a frozen model, from prepared data.
#include "launch/program/train_command.h"

#include <ATen/Context.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <utility>

#include "common/base/allowed_cores.h"
#include "common/base/command_line.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/comm/rank_group.h"
#include "common/model/device.h"
#include "data/token_shards.h"
#include "launch/program/refused_threads.h"
#include "train/loop/stop_signal.h"
#include "train/loop/train_loop.h"
#include "train/ranks/agreement.h"
#include "train/ranks/rank_messages.h"
#include "train/reports/flops.h"
#include "train/reports/machine_speeds.h"
#include "train/reports/plan.h"

namespace dex {
namespace {

// Held-out samples spread over the whole split, so that a few stand for all.
std::vector<Sample> held_out_samples(const TokenShards& shards, int wanted) {
  std::vector<Sample> samples;
  const std::size_t count = std::min(shards.size(), std::size_t(wanted));
  for (std::size_t i = 0; i < count; ++i)
    samples.push_back(shards.sample(i * shards.size() / count));
  return samples;
}

TrainingData open_data(const TrainOptions& options, const Model& model) {
  const auto shards = std::make_shared<TokenShards>(TokenShards::open(options.data, "train"));
  const TokenShards held_out = TokenShards::open(options.data, "held_out");
  shards->require_made_for(model.tokenizer ? model.tokenizer->digest() : "",
                           model.config.vocab_size);
  shards->require_positions(model.config.max_positions);
  held_out.require_positions(model.config.max_positions);
  return {.size = shards->size(),
          .sample = [shards](std::uint64_t index) { return shards->sample(index); },
          .held_out = held_out_samples(held_out, options.eval_samples),
          .digest = shards->digest(),
          .targets = std::int64_t(totals_of(shards->manifest().splits.at("train")).supervised)};
}

void prepare_torch(const TrainOptions& options, int local_world) {
  keep_freed_memory();
  // cuDNN would make a plan for every length, and samples are of all lengths.
  at::globalContext().setSDPUseCuDNN(false);
  set_torch_threads(options.threads > 0 ? options.threads
                                        : std::max(1, allowed_cores() / local_world));
  if (!options.deterministic) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);  // or libtorch refuses cuBLAS
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// Of a few samples spread over the data.
SampleShape mean_shape(const TrainingData& data) {
  const std::uint64_t count = std::min<std::uint64_t>(data.size, 64);
  SampleShape shape{0, 0};
  for (std::uint64_t i = 0; i < count; ++i) {
    const Sample sample = data.sample(i * data.size / count);
    shape.tokens += double(pass_tokens(sample)) / count;
    shape.rows += double(loss_rows(sample)) / count;
  }
  return shape;
}

double flops_per_second(const TrainOptions& options, at::Device device) {
  return options.teraflops > 0 ? options.teraflops * 1e12
                               : measure_gemm_peak(parse_dtype(options.dtype), device);
}

// Needs the model's config.json alone.
int plan_only(const TrainOptions& options, const RankEnvironment& place) {
  const ModelConfig config = read_model_config(options.model);
  const DepthSet depths = DepthSet::parse(options.depths, config.num_layers);
  const int world = options.world_size > 0 ? options.world_size : place.world;
  const RankLayout layout = rank_layout(depths, world, 0, options.stages);
  const at::Device device = choose_device(options.device, place.local_rank);
  const TrainPlan plan =
      plan_training(config, depths, options, layout, {}, flops_per_second(options, device));
  if (place.rank > 0) return int(ExitCode::done);
  spdlog::info("plan:\n{}", text_of(plan));
  std::cout << to_json(plan).dump() << std::endl;
  return int(ExitCode::done);
}

TrainOutcome train(const TrainOptions& options, RankGroup& group, const StopSignal& stop) {
  const RankEnvironment& place = group.environment();
  const ModelConfig config = read_model_config(options.model);
  const DepthSet depths = DepthSet::parse(options.depths, config.num_layers);
  const RankLayout layout = rank_layout(depths, place.world, place.rank, options.stages);
  const at::Device device = choose_device(options.device, place.local_rank);
  RankMessages ranks(layout, group.transport());
  // The rest when data and model are open; but who times which stages, and on what, must be the
  // same to all before they wait.
  require_agreement(ranks, {{"depths", depths.text()},
                            {"stages", layout.pipeline},
                            {"eval_samples", options.eval_samples},
                            {"device", device.is_cpu() ? "cpu" : "cuda"}});
  if (!group.alone() && !device.is_cpu()) {
    require_different(ranks, "GPU", gpu_identity(device));
    ranks.use_gpu_link(group.connect_gpus(device, gpu_peers(layout)));
  }
  const MachineSpeeds speeds = measure_machine(
      ranks, options.model, depths, parse_dtype(options.dtype), device,
      options.width_for(config.hidden_size), options.eval_samples > 0 && device.is_cpu());
  const bool leads = ranks.leads();
  if (leads) spdlog::info("{}", speeds.text(options.dtype));
  const Model model =
      Model::load(options.model, depths, parse_dtype(options.dtype), {WeightLayout::rows, device},
                  layout.stages(), DigestsOf::what_is_read);
  const TrainingData data = open_data(options, model);
  if (leads)
    spdlog::info("plan:\n{}", text_of(plan_training(config, depths, options, layout,
                                                    mean_shape(data), speeds.gemm_peak)));
  TrainLoop loop(options, model, data, [&] { return stop.raised(); }, std::move(ranks), speeds);
  loop.prepare();
  group.set_deadline(options.step_timeout);
  return loop.run();
}

void prepare(const TrainOptions& options, const RankEnvironment& place) {
  check(options);
  check_for_ranks(options, options.world_size > 0 ? options.world_size : place.world);
  prepare_torch(options, place.local_world);
}

int run(const TrainOptions& options) {
  // First of all, and to the end of the process: a late signal does not turn a finished run into a
  // killed one.
  static const auto& stop = *new StopSignal;
  RankGroup group;
  const RankEnvironment& place = group.environment();
  if (options.dry_run) {
    prepare(options, place);
    return plan_only(options, place);
  }
  group.prepare([&] {
    prepare(options, place);
    for (const auto& [name, path] : {std::pair{"--data", options.data}, {"--out", options.out}})
      require(!path.empty(), ExitCode::usage, "{} is missing; only --dry-run goes without", name);
  });
  group.join(options.init_timeout);
  const TrainOutcome outcome = group.run([&] { return train(options, group, stop); });
  if (place.rank == 0) std::cout << outcome.summary.dump() << std::endl;
  return int(outcome.finished ? ExitCode::done : ExitCode::temporary);
}

void add_options(CLI::App& c, TrainOptions& o) {
  c.add_option("--model", o.model, "Model directory (a config.json does for --dry-run)")
      ->required();
  c.add_option("--data", o.data, "Data set that dex prepare left");
  c.add_option("--depths", o.depths, "Depths that get an adapter, such as 10,20")->required();
  c.add_option("--out", o.out, "Directory for adapters, checkpoints and metrics");
  const auto number = [&c](const char* name, auto& value, const char* text) {
    c.add_option(name, value, text)->capture_default_str();
  };
  number("--epochs", o.epochs, "Passes over the data");
  number("--steps", o.steps, "Steps instead of epochs; 0: epochs count");
  number("--batch-size", o.batch_size, "Samples of a step");
  number("--micro-batch", o.micro_batch, "Samples that are in memory at once, at most");
  number("--micro-tokens", o.micro_tokens,
         "Tokens that are in memory at once, at most; a longer sample is there alone");
  number("--lr", o.learning_rate, "Highest learning rate");
  number("--warmup", o.warmup, "Share of the steps in which the rate rises; then it falls to 0");
  number("--weight-decay", o.weight_decay, "Of AdamW");
  number("--tau", o.tau, "Temperature of the distillation");
  number("--width", o.width, "Inner size of an adapter; 0: twice the hidden size");
  number("--init", o.init, "Start: paper (alpha 1e-3) or ridge (closed form)");
  number("--ridge-tokens", o.ridge_tokens, "Tokens the closed form is solved on");
  number("--dtype", o.dtype,
         "Compute type of the frozen model: bf16 or f32; adapters are trained in f32");
  number("--seed", o.seed, "Of start and sample order");
  number("--device", o.device,
         "cpu, cuda (a GPU for each process of a machine), or auto: GPUs where there are any");
  number("--threads", o.threads, "0: one per core");
  number("--save-every", o.save_every, "Steps between checkpoints; 0: at the end only");
  number("--keep", o.keep, "Checkpoints that stay");
  number("--stop-after", o.stop_after,
         "Stop after this step as an interruption would, after saving; 0: never");
  number("--eval-every", o.eval_every,
         "Steps between evaluations; 0: before and after training only");
  number("--eval-samples", o.eval_samples, "Held-out samples to evaluate on; 0: none");
  number("--on-nan", o.on_nan,
         "A step whose loss or gradient is no number: stop (the steps before it are saved) or skip "
         "(it changes nothing)");
  number("--nan-limit", o.nan_limit, "Steps skipped in a row that end the run all the same");
  number("--stages", o.stages,
         "Ranks that share a model's layers; 0: the largest divisor of the number of ranks up to "
         "the depths'");
  number("--init-timeout", o.init_timeout, "Seconds until all ranks must have met and loaded");
  number("--step-timeout", o.step_timeout,
         "Seconds a rank may wait for another; longer than a micro-batch or a save takes");
  c.add_option(
      "--cache-states", o.cache_states,
      "Directory that keeps the frozen model's hidden states for later epochs and runs (one rank)");
  c.add_flag("--resume", o.resume,
             "Go on after the newest whole checkpoint in --out, if there is one");
  c.add_flag("--restart", o.restart,
             "Start anew in an --out that holds an earlier run, whose checkpoints, adapters and "
             "metrics are removed");
  c.add_flag("--allow-unlocked", o.allow_unlocked,
             "Go on where the file system of --out or --cache-states has no locks; no other run "
             "may use them then");
  c.add_flag("--deterministic", o.deterministic,
             "Refuse operators whose result may differ between runs");
  c.add_flag("--dry-run", o.dry_run, "Print the plan and stop; needs config.json only");
  number("--world-size", o.world_size, "Ranks to plan for in a dry run; 0: those there are");
  number("--teraflops", o.teraflops,
         "TFLOP/s of a rank to plan with in a dry run; 0: measured here");
}

}  // namespace

void refuse_to_join(const std::string& reason) noexcept {
  try {
    RankGroup().prepare([&] { fail(ExitCode::usage, "{}", reason); });
  } catch (const std::exception&) {
  }
}

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
