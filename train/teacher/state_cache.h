// The frozen model's hidden states of samples, kept on disk: they do not change in training, so a
// sample that was seen once, by this run or an earlier one, needs no pass of the model.
//
// - states.json: what they were made by. Its fields: format, version, numbers_version,
//   model_fingerprint, model_digest, data_digest, depths, dtype, device.
// - states-<n>.safetensors, n = 000000, 000001, ...: a tensor F32 (depths, loss rows, hidden) for
//   each sample. The last depth is the model's. The tensor's name is the SHA-256 of ids and marks.
//   Under the same name the metadata have the SHA-256 of what is in states.json, name and tensor.
//   A file is written whole and never changed.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/directory_lock.h"
#include "common/base/safetensors.h"
#include "common/model/model.h"
#include "data/sample.h"

namespace dex {

// Of a sample: its ids and marks, nothing else.
std::string key_of(const Sample& sample);

class StateCache {
 public:
  // Makes or opens the directory and keeps it for this run: Error(temporary) while another uses it.
  // Error(usage) with both values when it holds states of another model, data set, depths or type,
  // Error(io) when a file there is cut or altered.
  // A lock as DirectoryLock takes it.
  StateCache(std::filesystem::path dir, const Model& model, const std::string& data_digest,
             bool lock_needed = true);

  // Says how many bytes `rows` loss rows take. Error(io) when the disk has no room for what is not
  // there yet.
  void require_room(std::int64_t rows) const;

  // (depths, rows, hidden) as add() was given them, or an undefined tensor. It lives as long as the
  // cache. Error(io) when its bytes are not those that were written.
  at::Tensor find(const std::string& key);
  // What is added is on disk in whole parts only; flush() makes a part of what is not there yet.
  void add(const std::string& key, at::Tensor states);
  void flush();

 private:
  struct Place {
    std::size_t part = 0;
    bool verified = false;
  };
  void open_part(const std::filesystem::path& path);
  std::filesystem::path next_part() const;

  std::filesystem::path dir_;
  DirectoryLock lock_;
  std::string about_;
  std::vector<std::int64_t> shape_;  // depths, -1, hidden
  std::vector<WeightFile> parts_;
  std::map<std::string, Place> places_;
  std::map<std::string, at::Tensor> waiting_;   // for the next part
  std::int64_t bytes_ = 0, waiting_bytes_ = 0;  // in parts_, in waiting_
};

}  // namespace dex
