#include "train/loss/adamw.h"

#include <fmt/format.h>

#include <cmath>

#include "common/base/adapter_tensors.h"
#include "train/loss/adapter_gradient.h"

namespace dex {
namespace {

// PyTorch's defaults; the paper names none
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

}  // namespace

AdamW::AdamW(std::vector<AdapterWeights>& weights, const std::vector<int>& depths,
             double weight_decay)
    : weights_(weights), depths_(depths), weight_decay_(weight_decay) {
  for (const AdapterWeights& w : weights) {
    first_.push_back(zeros_like(w));
    second_.push_back(zeros_like(w));
  }
}

void AdamW::step(const std::vector<AdapterWeights>& gradients, double learning_rate) {
  ++steps_;
  const double correction1 = 1 - std::pow(kBeta1, double(steps_));
  const double correction2 = 1 - std::pow(kBeta2, double(steps_));
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    const auto weight = weights_[k].named(), gradient = gradients[k].named(),
               first = first_[k].named(), second = second_[k].named();
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const at::Tensor &w = weight[i].second, &g = gradient[i].second, &m = first[i].second,
                       &v = second[i].second;
      m.mul_(kBeta1).add_(g, 1 - kBeta1);
      v.mul_(kBeta2).addcmul_(g, g, 1 - kBeta2);
      if (weight_decay_ != 0) w.mul_(1 - learning_rate * weight_decay_);
      w.addcdiv_(m, (v.sqrt() / std::sqrt(correction2)).add_(kEpsilon),
                 -learning_rate / correction1);
    }
  }
}

std::map<std::string, at::Tensor> AdamW::moments() const {
  std::map<std::string, at::Tensor> all;
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    for (const auto& [name, tensor] : first_[k].named())
      all["first." + adapter_tensor::name_at(depths_[k], name)] = tensor;
    for (const auto& [name, tensor] : second_[k].named())
      all["second." + adapter_tensor::name_at(depths_[k], name)] = tensor;
  }
  return all;
}

}  // namespace dex
