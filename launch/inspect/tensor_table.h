// A weight file's tensors, the layers' twins in one line each.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/safetensors.h"

namespace dex {

class TensorTable {
 public:
  explicit TensorTable(const WeightFile& weights);

  std::string text() const;
  nlohmann::json facts() const;  // "tensors", "elements", "bytes", "by_type"

 private:
  struct Line {
    std::string name, type, shape;  // "model.layers.*.mlp.up_proj.weight"
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<Line> lines_, types_;
  Line total_;
};

}  // namespace dex
