#include "train/teacher/state_cache.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_differences.h"
#include "common/base/json_file.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/base/version.h"
#include "common/model/tensors.h"
#include "kernels/numbers_version.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kPartBytes = 64 << 20;
constexpr const char* kAbout = "states.json";

std::string digest_of(const std::string& about, const std::string& key,
                      std::span<const std::byte> states) {
  Sha256 digest;
  digest.add(about);
  digest.add(key);
  digest.add(states);
  return digest.hex();
}

void require_same(const fs::path& path, const json& wanted) {
  const json seen = read_json_object(path);
  require_same_numbers(seen, path.string(), "another --cache-states makes the states again");
  const std::string differences = json_differences(seen, wanted, "{} is {}, wanted {}");
  require(differences.empty(), ExitCode::usage,
          "{}: --cache-states names the states of something else: {}", path.string(), differences);
}

}  // namespace

std::string key_of(const Sample& sample) {
  Sha256 digest;
  digest.add(std::as_bytes(std::span(sample.tokens)));
  digest.add(std::as_bytes(std::span(sample.supervised)));
  return digest.hex();
}

StateCache::StateCache(fs::path dir, const Model& model, const std::string& data_digest,
                       bool lock_needed)
    : dir_(std::move(dir)),
      lock_((make_directory(dir_), dir_), lock_needed),
      shape_{model.depths.num_stages(), -1, model.config.hidden_size} {
  const json about = {{"format", "dex hidden states 1"},
                      {"version", version()},
                      {kNumbersField, kNumbersVersion},
                      {"model_fingerprint", model.fingerprint},
                      {"model_digest", joint_digest(model.known_digests())},
                      {"data_digest", data_digest},
                      {"depths", model.depths.text()},
                      {"dtype", name_of(model.stages.front().dtype())},
                      {"device", at::DeviceTypeName(model.device.type(), /*lower_case=*/true)}};
  about_ = about.dump();
  remove_temporaries(dir_ / kAbout);
  if (fs::exists(dir_ / kAbout))
    require_same(dir_ / kAbout, about);
  else
    write_file(dir_ / kAbout, about.dump(2) + "\n");
  while (fs::exists(next_part())) open_part(next_part());
  remove_temporaries(next_part());
}

fs::path StateCache::next_part() const {
  return dir_ / fmt::format("states-{:06}.safetensors", parts_.size());
}

void StateCache::open_part(const fs::path& path) {
  parts_.push_back(WeightFile::open(path));
  const WeightFile& part = parts_.back();
  for (const auto& [key, stored] : part.tensors()) {
    require(stored.type == StoredType::f32 && stored.shape.size() == 3 &&
                stored.shape[0] == shape_[0] && stored.shape[2] == shape_[2] &&
                part.metadata().contains(key),
            ExitCode::io, "{}: {} is {} [{}], wanted F32 [{}, rows, {}] and a digest",
            path.string(), key, name_of(stored.type), fmt::join(stored.shape, ", "), shape_[0],
            shape_[2]);
    if (places_.emplace(key, Place{parts_.size() - 1}).second)
      bytes_ += std::int64_t(stored.bytes.size());
  }
}

void StateCache::require_room(std::int64_t rows) const {
  const std::int64_t wanted = rows * shape_[0] * shape_[2] * 4;
  std::error_code error;
  const fs::space_info space = fs::space(dir_, error);
  require(!error, ExitCode::io, "{}: its free space cannot be asked for: {}", dir_.string(),
          error.message());
  const auto gigabytes = [](auto bytes) { return double(bytes) / 1e9; };
  spdlog::info(
      "hidden states in {}: {} rows x {} depths x {} x 4 bytes = {:.3f} GB, {:.3f} there, {:.3f} "
      "free",
      dir_.string(), rows, shape_[0], shape_[2], gigabytes(wanted), gigabytes(bytes_),
      gigabytes(space.available));
  require(
      wanted <= bytes_ || std::uintmax_t(wanted - bytes_) <= space.available, ExitCode::io,
      "{}: {} bytes free, wanted {} more for the hidden states of {} rows; free some or go without "
      "--cache-states",
      dir_.string(), space.available, wanted - bytes_, rows);
}

at::Tensor StateCache::find(const std::string& key) {
  if (const auto waiting = waiting_.find(key); waiting != waiting_.end()) return waiting->second;
  const auto found = places_.find(key);
  if (found == places_.end()) return {};
  const WeightFile& part = parts_[found->second.part];
  const StoredTensor& stored = part.at(key);
  if (!found->second.verified) {
    const std::string seen = digest_of(about_, key, stored.bytes), wanted = part.metadata().at(key);
    require(seen == wanted, ExitCode::io,
            "{}: altered: {} has SHA-256 {}, wanted {}; without the files from here on "
            "they are made again",
            part.origin(), key, seen, wanted);
    found->second.verified = true;
  }
  return view_of(stored);
}

void StateCache::add(const std::string& key, at::Tensor states) {
  if (states.numel() == 0) return;
  waiting_bytes_ += std::int64_t(states.nbytes());
  waiting_.emplace(key, std::move(states));
  if (waiting_bytes_ >= kPartBytes) flush();
}

void StateCache::flush() {
  if (waiting_.empty()) return;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> digests;
  for (const auto& [key, states] : waiting_) {
    tensors[key] = stored_view(states);
    digests[key] = digest_of(about_, key, tensors[key].bytes);
  }
  const fs::path path = next_part();
  write_safetensors(path, tensors, digests);
  open_part(path);
  waiting_.clear();
  waiting_bytes_ = 0;
}

}  // namespace dex
