// Speed and memory of training steps: the model's passes, the loss and the optimizer, without
// files.
//   dex_train_bench MODEL DTYPE DEPTHS LENGTH SAMPLES [DATA] [STEPS]
// SAMPLES of LENGTH random ids, every row supervised, or those of DATA (what dex prepare left) in
// order, cut to LENGTH. Prints one JSON line: a first step goes unmeasured.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "common/base/allowed_cores.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/heap.h"
#include "common/base/peak_memory.h"
#include "common/base/program.h"
#include "common/base/stopwatch.h"
#include "common/model/model.h"
#include "data/token_shards.h"
#include "train/loss/adamw.h"
#include "train/loss/adapter_gradient.h"
#include "train/loss/distill_loss.h"
#include "train/reports/flops.h"
#include "train/teacher/teacher_states.h"

namespace dex {
namespace {

class Samples {
 public:
  Samples(std::int64_t length, std::int64_t vocab, const char* data)
      : length_(length), ids_(0, Token(vocab - 1)) {
    if (data) shards_.emplace(TokenShards::open(data, "train"));
  }

  Sample next() {
    Sample sample{std::vector<Token>(length_), std::vector<std::uint8_t>(length_, 1)};
    if (shards_)
      sample = shards_->sample(index_++ % shards_->size());
    else
      for (Token& id : sample.tokens) id = ids_(random_);
    sample.tokens.resize(std::min(length_, sample.tokens.size()));
    sample.supervised.resize(sample.tokens.size());
    return sample;
  }

 private:
  std::size_t length_, index_ = 0;
  std::uniform_int_distribution<Token> ids_;
  std::mt19937 random_{1};
  std::optional<TokenShards> shards_;
};

struct Steps {
  std::int64_t samples = 0, tokens = 0, rows = 0;
  double loss = 0, flops = 0;
};

class Trainer {
 public:
  Trainer(const Model& model, const std::vector<int>& depths)
      : model_(model), source_(model), loss_(*model.head, 1) {
    for (int depth : depths)
      weights_.push_back(
          AdapterWeights::paper_start(model.config, 2 * model.config.hidden_size, 0, depth));
    for (const AdapterWeights& w : weights_) gradients_.push_back(zeros_like(w));
    optimizer_.emplace(weights_, depths, 0.0);
  }

  void step(const std::vector<Sample>& samples, Steps& sum) {
    std::int64_t rows = 0;
    for (const Sample& sample : samples) rows += loss_rows(sample);
    for (const AdapterWeights& g : gradients_)
      for (const auto& [name, tensor] : g.named()) tensor.zero_();
    const HiddenRows hidden = source_.rows(samples);
    const DistillResult result =
        loss_.add_gradients(hidden.h_RD, hidden.final_RD, weights_, std::max<std::int64_t>(1, rows),
                            gradients_, std::int64_t(weights_.size()));
    optimizer_->step(gradients_, 1e-3);
    sum.samples += std::int64_t(samples.size());
    for (const Sample& sample : samples) sum.tokens += std::int64_t(sample.tokens.size());
    sum.rows += rows;
    const std::int64_t size = model_.config.hidden_size;
    sum.flops += step_flops(model_.config, {std::int64_t(weights_.size()), size, 2 * size},
                            model_.head->vocab(), samples);
    sum.loss = 0;
    for (double kl : result.kl)
      sum.loss += kl / double(std::max<std::int64_t>(1, rows)) / double(weights_.size());
  }

 private:
  const Model& model_;
  TeacherStates source_;
  DistillLoss loss_;
  std::vector<AdapterWeights> weights_, gradients_;
  std::optional<AdamW> optimizer_;
};

int run(int count, char** arguments) {
  require(count >= 6 && count <= 8, ExitCode::usage,
          "wanted dex_train_bench MODEL DTYPE DEPTHS LENGTH SAMPLES [DATA] [STEPS]");
  const c10::InferenceMode inference;
  const std::string dtype = arguments[2];
  const std::int64_t length = number_argument("LENGTH", arguments[4], 2),
                     samples = number_argument("SAMPLES", arguments[5], 1);
  const char* data = count > 6 && *arguments[6] ? arguments[6] : nullptr;
  const int steps = count > 7 ? number_argument("STEPS", arguments[7], 1) : 4;
  keep_freed_memory();
  at::set_num_threads(allowed_cores());
  const DepthSet depths = DepthSet::parse(arguments[3], read_model_config(arguments[1]).num_layers);
  const Model model = Model::load(arguments[1], depths, parse_dtype(dtype), WeightLayout::rows);
  Trainer trainer(model, {depths.depths().begin(), depths.depths().end() - 1});
  Samples source(length, model.config.vocab_size, data);
  const auto batch = [&] {
    std::vector<Sample> taken;
    for (std::int64_t i = 0; i < samples; ++i) taken.push_back(source.next());
    return taken;
  };
  Steps warm, sum;
  trainer.step(batch(), warm);
  double peak = measure_gemm_peak(parse_dtype(dtype), at::kCPU);
  const Stopwatch watch;
  for (int i = 0; i < steps; ++i) trainer.step(batch(), sum);
  const double seconds = watch.seconds();
  peak = std::max(peak, measure_gemm_peak(parse_dtype(dtype), at::kCPU));
  std::cout << nlohmann::json{{"dtype", dtype},
                              {"depths", depths.text()},
                              {"samples_per_step", samples},
                              {"length", length},
                              {"steps", steps},
                              {"tokens_per_second", double(sum.tokens) / seconds},
                              {"rows_per_second", double(sum.rows) / seconds},
                              {"samples_per_second", double(sum.samples) / seconds},
                              {"peak_memory_bytes", peak_memory_bytes()},
                              {"gemm_peak", peak},
                              {"of_gemm_peak", sum.flops / seconds / peak},
                              {"loss", sum.loss}}
                   .dump()
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace dex

int main(int count, char** arguments) {
  return dex::run_program("dex_train_bench", [&] { return dex::run(count, arguments); });
}
