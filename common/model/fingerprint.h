// What tells a model from others: a fingerprint, cheap at any size, that every process takes of the
// whole, and the digests of tensors, which each takes of what it reads.
#pragma once
#include <map>
#include <string>

#include "common/base/safetensors.h"
#include "common/model/config.h"

namespace dex {

// SHA-256 over the config's numbers and every tensor's name, type, shape and first and last 4 KiB.
// A change only in the middle of a tensor is not seen.
std::string model_fingerprint(const ModelConfig& config, const WeightFile& weights);

using Digests = std::map<std::string, std::string>;  // tensor -> SHA-256 of its bytes in the file

// Of every tensor that the model reads: reads all weights.
Digests model_digests(const ModelConfig& config, WeightFile& weights);

// Of all digests: what two models must have in common to be the same.
std::string joint_digest(const Digests& digests);

}  // namespace dex
