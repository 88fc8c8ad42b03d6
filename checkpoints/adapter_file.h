// Adapters on disk: a directory with adapter_config.json and adapter_model.safetensors (see
// FORMAT.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/safetensors.h"

namespace dex {

struct AdapterConfig {
  std::vector<int> depths;  // the non-final depths that have an adapter, increasing
  std::int64_t hidden_size = 0, width = 0;
  std::string activation = "silu";
  std::string dtype = "f32";  // of the stored tensors
  std::string model_fingerprint, data_digest;
  double tau = 1;
  // SHA-256 of each tensor of the model, by name; empty in files of forms before it was kept
  std::map<std::string, std::string> model_tensors;
};

struct AdapterFile {
  AdapterConfig config;
  WeightFile weights;  // "depth.<d>.norm.weight", ...: exactly the tensors that config promises

  // Error(usage) with both values when made for another. `digests`: of the tensors that this
  // process reads. Where the file has none to hold against them, that is told.
  void require_model(const std::string& fingerprint,
                     const std::map<std::string, std::string>& digests) const;
};

// The name and shape of every tensor that an adapter of these sizes has, as the file spells them.
std::map<std::string, std::vector<std::int64_t>> adapter_tensors(const AdapterConfig& config);

// Each of the two files appears whole or not at all, the config last. It names the digest of the
// tensors, so that a config never passes for that of other tensors. Equal input gives equal bytes.
void write_adapter_file(const std::filesystem::path& dir, const AdapterConfig& config,
                        const std::map<std::string, StoredTensor>& tensors);

// Error(usage) when the directory or a file is missing, Error(io) when anything does not fit: a
// field, a tensor more or less, a shape, a type, the digest, a NaN.
AdapterFile read_adapter_file(const std::filesystem::path& dir);

// As above, and refuses adapters of another model.
AdapterFile read_adapter_file(const std::filesystem::path& dir,
                              const std::string& model_fingerprint,
                              const std::map<std::string, std::string>& model_digests = {});

}  // namespace dex
