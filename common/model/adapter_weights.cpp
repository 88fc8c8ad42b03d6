#include <cmath>
#include <random>

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
  return {{"norm.weight", norm}, {"up.weight", up},        {"up.bias", up_bias},
          {"down.weight", down}, {"down.bias", down_bias}, {"alpha", alpha}};
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
  const auto name = [&](const char* part) { return fmt::format("depth.{}.{}", depth, part); };
  const auto& up_shape = file.at(name("up.weight")).shape;
  require(up_shape.size() == 2, ExitCode::io, "{}: the tensor {} has {} dimensions, wanted 2",
          file.origin(), name("up.weight"), up_shape.size());
  const std::int64_t width = up_shape[0], hidden = config.hidden_size;
  const auto load = [&](const char* part, std::vector<std::int64_t> shape) {
    return load_tensor(file, name(part), shape, Dtype::f32);
  };
  return {.norm = load("norm.weight", {hidden}),
          .up = load("up.weight", {width, hidden}),
          .up_bias = load("up.bias", {width}),
          .down = load("down.weight", {hidden, width}),
          .down_bias = load("down.bias", {hidden}),
          .alpha = load("alpha", {})};
}

}  // namespace dex
