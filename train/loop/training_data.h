// The samples a run trains and is measured on, wherever they come from.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/sample.h"

namespace dex {

struct TrainingData {
  std::uint64_t size = 0;
  // 0 <= index < size; one call at a time, in training by another thread
  std::function<Sample(std::uint64_t index)> sample;
  std::vector<Sample> held_out;  // never trained on
  std::string digest;            // equal for equal samples
  std::int64_t targets = 0;      // supervised tokens of all samples
};

}  // namespace dex
