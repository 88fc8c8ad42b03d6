// The frozen model run over samples: the hidden states that the adapters learn from. Nothing is padded, and only the
// supervised rows come out.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/model.h"
#include "data/sample.h"

namespace dex {

struct HiddenRows {                // R supervised rows, D hidden
  std::vector<at::Tensor> h_RD;    // at each non-final depth
  at::Tensor final_RD;             // at depth L
  std::int64_t tokens = 0;         // that went through the model
};

class HiddenSource {
 public:
  explicit HiddenSource(const Model& model) : model_(model) {}
  HiddenRows rows(std::span<const Sample> samples) const;

 private:
  const Model& model_;
};

// Targets that have a row before them: what a step's loss is divided by.
std::int64_t loss_rows(const Sample& sample);

}  // namespace dex
