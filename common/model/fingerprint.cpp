#include "common/model/fingerprint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/digest.h"
#include "common/model/weight_list.h"

namespace dex {
namespace {

constexpr std::size_t kSampledBytes = 4096;  // of each tensor's start and end

}  // namespace

std::string model_fingerprint(const ModelConfig& c, const WeightFile& weights) {
  Sha256 digest;
  digest.add(digest_text(c));
  for (const auto& [name, tensor] : weights.tensors()) {
    digest.add(fmt::format("{} {} {}\n", name, name_of(tensor.type), fmt::join(tensor.shape, ",")));
    digest.add(tensor.bytes.first(std::min(kSampledBytes, tensor.bytes.size())));
    digest.add(tensor.bytes.last(std::min(kSampledBytes, tensor.bytes.size())));
  }
  return digest.hex();
}

Digests model_digests(const ModelConfig& config, WeightFile& weights) {
  weights.take_digests();
  for (const auto& [name, shape] : model_tensors(config)) weights.at(name);
  Digests digests = weights.digests();
  weights.require_unchanged();
  return digests;
}

std::string joint_digest(const Digests& digests) {
  Sha256 digest;
  for (const auto& [name, hex] : digests) digest.add(name + " " + hex + "\n");
  return digest.hex();
}

}  // namespace dex
