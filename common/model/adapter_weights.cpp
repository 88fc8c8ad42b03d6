#include <cmath>
#include <random>

#include "common/base/adapter_tensors.h"
#include "common/base/error.h"
#include "common/model/adapter.h"
#include "common/model/tensors.h"

namespace dex {
namespace {

// Uniform in [-bound, bound), the same on every machine: the standard fixes the generator but not
// the distributions.
at::Tensor uniform(std::vector<std::int64_t> shape, double bound, std::mt19937_64& generator) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  for (float *value = tensor.data_ptr<float>(), *end = value + tensor.numel(); value != end;
       ++value)
    *value = float((double(generator() >> 11) * 0x1p-52 - 1.0) * bound);
  return tensor;
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> AdapterWeights::named() const {
  using namespace adapter_tensor;
  return {{kNorm, norm},          {kUp, up},      {kUpBias, up_bias}, {kDown, down},
          {kDownBias, down_bias}, {kAlpha, alpha}};
}

std::int64_t AdapterWeights::parameters() const {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : named()) count += tensor.numel();
  return count;
}

AdapterWeights AdapterWeights::paper_start(const ModelConfig& config, std::int64_t width,
                                           std::uint64_t seed, int depth) {
  const std::int64_t hidden = config.hidden_size;
  std::seed_seq mixed{std::uint32_t(seed), std::uint32_t(seed >> 32), std::uint32_t(depth)};
  std::mt19937_64 generator(mixed);
  const double up_bound = 1 / std::sqrt(double(hidden)), down_bound = 1 / std::sqrt(double(width));
  AdapterWeights w;
  w.norm = at::ones({hidden}, at::kFloat);
  w.up = uniform({width, hidden}, up_bound, generator);
  w.up_bias = uniform({width}, up_bound, generator);
  w.down = uniform({hidden, width}, down_bound, generator);
  w.down_bias = uniform({hidden}, down_bound, generator);
  w.alpha = at::full({}, 1e-3, at::kFloat);
  return w;
}

AdapterWeights AdapterWeights::read(const WeightFile& file, const ModelConfig& config, int depth) {
  using namespace adapter_tensor;
  const std::string up_name = name_at(depth, kUp);
  const auto& up_shape = file.at(up_name).shape;
  require(up_shape.size() == 2, ExitCode::io, "{}: the tensor {} has {} dimensions, wanted 2",
          file.origin(), up_name, up_shape.size());
  const auto wanted = shapes(config.hidden_size, up_shape[0]);
  const auto load = [&](const char* name) {
    return load_tensor(file, name_at(depth, name), wanted.at(name), Dtype::f32);
  };
  return {.norm = load(kNorm),
          .up = load(kUp),
          .up_bias = load(kUpBias),
          .down = load(kDown),
          .down_bias = load(kDownBias),
          .alpha = load(kAlpha)};
}

}  // namespace dex
