#include "common/base/safetensors.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/allowed_cores.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_file.h"
#include "common/base/mapped_file.h"
#include "common/base/safetensors_header.h"
#include "common/base/tensor_digests.h"

namespace dex {

struct WeightFile::State {
  std::filesystem::path origin;
  std::vector<MappedFile> files;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::unique_ptr<TensorDigests> digests;  // last: ends before the files do
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

using WeightMap = std::map<std::string, std::string>;  // tensor -> file

WeightMap read_index(const fs::path& index) {
  const nlohmann::json object = read_json_object(index);
  require(object.contains("weight_map") && object["weight_map"].is_object() &&
              !object["weight_map"].empty(),
          ExitCode::io, "{}: has no weight_map; wanted an object of tensor names and files",
          index.string());
  WeightMap weight_map;
  for (const auto& [tensor, file] : object["weight_map"].items()) {
    require(file.is_string(), ExitCode::io, "{}: weight_map of {} is a JSON {}; wanted a file name",
            index.string(), tensor, file.type_name());
    const auto name = file.get<std::string>();
    require(!name.empty() && fs::path(name).filename() == name && name != "." && name != "..",
            ExitCode::io,
            "{}: weight_map places {} in \"{}\"; wanted the name of a file beside the index",
            index.string(), tensor, name);
    weight_map[tensor] = name;
  }
  return weight_map;
}

std::set<std::string> shards_of(const WeightMap& weight_map) {
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  return shards;
}

// All that are missing at once, before anything is read: a broken download seldom lacks one file
// only.
void require_shards(const fs::path& index, const std::set<std::string>& shards) {
  std::vector<std::string> missing;
  for (const std::string& shard : shards)
    if (!fs::exists(index.parent_path() / shard)) missing.push_back(shard);
  require(missing.empty(), ExitCode::usage, "{}: {} of the {} files it names are missing: {}",
          index.string(), missing.size(), shards.size(), fmt::join(missing, ", "));
}

// Whoever put them there may take them for read.
void note_unread(const fs::path& origin, const std::set<std::string>& read) {
  std::vector<std::string> unread;
  const fs::path dir = origin.has_parent_path() ? origin.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool weights = entry.path().extension() == ".safetensors" || name == kIndex;
    if (weights && name != origin.filename() && !read.contains(name)) unread.push_back(name);
  }
  std::sort(unread.begin(), unread.end());
  if (!unread.empty())
    spdlog::warn("{}: beside it, and not read: {}", origin.string(), fmt::join(unread, ", "));
}

}  // namespace

WeightFile::WeightFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
WeightFile::WeightFile(WeightFile&&) noexcept = default;
WeightFile& WeightFile::operator=(WeightFile&&) noexcept = default;
WeightFile::~WeightFile() = default;

WeightFile WeightFile::open(const fs::path& path) {
  auto state = std::make_unique<State>();
  state->origin = path;
  const auto add_file = [&](const fs::path& file) {
    state->files.emplace_back(file);
    SafetensorsHeader header = read_safetensors_header(state->files.back().bytes(), file.string());
    state->metadata.merge(header.metadata);
    return std::move(header.tensors);
  };

  require(fs::exists(path), ExitCode::usage, "{}: no such file or directory", path.string());
  if (fs::is_directory(path))
    state->origin = fs::exists(path / kSingle) ? path / kSingle : path / kIndex;
  require(fs::exists(state->origin), ExitCode::usage, "{}: has neither {} nor {}", path.string(),
          kSingle, kIndex);
  if (state->origin.extension() != ".json") {
    state->tensors = add_file(state->origin);
    if (fs::is_directory(path)) note_unread(state->origin, {});
    return WeightFile(std::move(state));
  }

  const WeightMap weight_map = read_index(state->origin);
  const std::set<std::string> shards = shards_of(weight_map);
  require_shards(state->origin, shards);
  note_unread(state->origin, shards);
  for (const std::string& shard : shards) {
    for (auto& [name, tensor] : add_file(state->origin.parent_path() / shard)) {
      const auto placed = weight_map.find(name);
      require(placed != weight_map.end() && placed->second == shard, ExitCode::io,
              "{}: tensor {} stands in {}, but the index places it in {}", state->origin.string(),
              name, shard, placed == weight_map.end() ? "no file" : placed->second);
      state->tensors.emplace(name, std::move(tensor));
    }
  }
  for (const auto& [name, shard] : weight_map)
    require(state->tensors.contains(name), ExitCode::io,
            "{}: tensor {} is not in {}, where the index places it", state->origin.string(), name,
            shard);
  return WeightFile(std::move(state));
}

const std::map<std::string, StoredTensor>& WeightFile::tensors() const { return state_->tensors; }
const std::map<std::string, std::string>& WeightFile::metadata() const { return state_->metadata; }
std::string WeightFile::origin() const { return state_->origin.string(); }
bool WeightFile::has(const std::string& name) const { return state_->tensors.contains(name); }

const StoredTensor& WeightFile::at(const std::string& name) const {
  const auto tensor = state_->tensors.find(name);
  require(tensor != state_->tensors.end(), ExitCode::io, "{}: has no tensor {}", origin(), name);
  if (state_->digests) state_->digests->add(name, tensor->second.bytes);
  return tensor->second;
}

void WeightFile::take_digests() {
  constexpr int kMostThreads = 4;  // as fast as disks are read
  const int cores = allowed_cores();
  state_->digests = std::make_unique<TensorDigests>(std::clamp(cores / 2, 1, kMostThreads));
}

std::map<std::string, std::string> WeightFile::digests() const {
  require(state_->digests != nullptr, ExitCode::bug, "{}: no digests were taken", origin());
  return state_->digests->finish();
}

void WeightFile::require_unchanged() const {
  for (const MappedFile& file : state_->files) file.require_unchanged();
}

void write_safetensors(const fs::path& path, const std::map<std::string, StoredTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_safetensors_header(tensors, metadata);
  std::vector<std::string_view> pieces{header};
  for (const auto& [name, tensor] : tensors)
    pieces.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  write_file(path, pieces);
}

}  // namespace dex
