#include "launch/inspect/rewrite.h"

#include <optional>

#include "checkpoints/adapter_file.h"
#include "common/base/directory_lock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/model/fingerprint.h"
#include "common/model/weight_list.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> adapters_in(const fs::path& path) {
  std::vector<fs::path> found;
  for (const fs::path& dir : {path, path / "best"})
    if (fs::exists(dir / "adapter_config.json")) found.push_back(dir);
  return found;
}

// Whether it was of an older form.
bool rewrite(const fs::path& dir, const std::string& fingerprint, const Digests& digests) {
  const AdapterFile file = read_adapter_file(dir);
  AdapterConfig config = file.config;
  const bool old = config.model_tensors.empty();
  if (old) config.model_tensors = digests;
  AdapterFile{config, read_adapter_file(dir).weights}.require_model(fingerprint, digests);
  if (old) write_adapter_file(dir, config, file.weights.tensors());
  return old;
}

}  // namespace

Inspection rewrite_adapters(const fs::path& path, const fs::path& model) {
  require(fs::exists(path), ExitCode::usage, "{}: no such directory", path.string());
  const std::vector<fs::path> found = adapters_in(path);
  require(!found.empty(), ExitCode::usage,
          "{}: holds no adapters; wanted their directory, or a training run's that has some",
          path.string());
  std::optional<DirectoryLock> lock;
  if (fs::is_directory(path / "checkpoints")) lock.emplace(path);

  const ModelConfig config = read_model_config(model);
  WeightFile weights = WeightFile::open(model);
  refuse_unread(config, weights, /*compare_head=*/true);
  const std::string fingerprint = model_fingerprint(config, weights);
  const Digests digests = model_digests(config, weights);
  nlohmann::json rewritten = nlohmann::json::array();
  for (const fs::path& dir : found) {
    const bool old = rewrite(dir, fingerprint, digests);
    spdlog::info("{}: {}", dir.string(), old ? "rewritten" : "of today's form already");
    if (old) rewritten.push_back(dir.string());
  }
  Inspection inspection = inspect(path);
  inspection.facts["rewritten"] = rewritten;
  return inspection;
}

}  // namespace dex
