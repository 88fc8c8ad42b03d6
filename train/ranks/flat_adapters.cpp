#include "train/ranks/flat_adapters.h"

namespace dex {

std::vector<AdapterWeights> adapter_views(const at::Tensor& vector, const ExitSizes& s) {
  std::vector<AdapterWeights> exits;
  for (std::int64_t k = 0; k < s.exits; ++k) {
    std::int64_t at = k * s.stride();
    const auto take = [&](std::vector<std::int64_t> shape) {
      std::int64_t count = 1;
      for (std::int64_t size : shape) count *= size;
      at += count;
      return vector.slice(0, at - count, at).view(shape);
    };
    // The large ones first, aligned.
    const at::Tensor up = take({s.width, s.hidden}), down = take({s.hidden, s.width});
    exits.push_back({.norm = take({s.hidden}),
                     .up = up,
                     .up_bias = take({s.width}),
                     .down = down,
                     .down_bias = take({s.hidden}),
                     .alpha = take({})});
  }
  return exits;
}

at::Tensor flat_adapters(const std::vector<AdapterWeights>& exits) {
  if (exits.empty()) return at::empty({0});
  const ExitSizes sizes{std::int64_t(exits.size()), exits.front().up.size(1),
                        exits.front().up.size(0)};
  at::Tensor vector = at::zeros({sizes.size()});
  const auto views = adapter_views(vector, sizes);
  for (std::size_t k = 0; k < exits.size(); ++k) {
    const auto from = exits[k].named(), to = views[k].named();
    for (std::size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
  }
  return vector;
}

std::vector<AdapterWeights> adapters_of(const at::Tensor& vector, const ExitSizes& sizes) {
  auto exits = adapter_views(vector, sizes);
  for (AdapterWeights& w : exits)
    w = {.norm = w.norm.clone(),
         .up = w.up.clone(),
         .up_bias = w.up_bias.clone(),
         .down = w.down.clone(),
         .down_bias = w.down_bias.clone(),
         .alpha = w.alpha.clone()};
  return exits;
}

std::vector<AdapterWeights> on_device(std::vector<AdapterWeights> exits, at::Device device) {
  for (AdapterWeights& w : exits)
    for (at::Tensor* tensor : {&w.norm, &w.up, &w.up_bias, &w.down, &w.down_bias, &w.alpha})
      *tensor = tensor->to(device);
  return exits;
}

}  // namespace dex
