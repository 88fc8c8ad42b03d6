// AdamW with float32 weights and moments, whatever the compute type.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/adapter.h"

namespace dex {

class AdamW {
 public:
  // `weights` are updated in place; depth[k] names weights[k] in the state. Both must outlive the
  // optimizer.
  AdamW(std::vector<AdapterWeights>& weights, const std::vector<int>& depths, double weight_decay);

  void step(const std::vector<AdapterWeights>& gradients, double learning_rate);

  // "first.depth.<d>.<name>" and "second.depth.<d>.<name>": live tensors, so a reader may copy into
  // them.
  std::map<std::string, at::Tensor> moments() const;
  const std::vector<AdapterWeights>& first() const { return first_; }
  const std::vector<AdapterWeights>& second() const { return second_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  std::vector<AdapterWeights>& weights_;
  std::vector<int> depths_;
  std::vector<AdapterWeights> first_, second_;
  double weight_decay_;
  std::int64_t steps_ = 0;
};

}  // namespace dex
