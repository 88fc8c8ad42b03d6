// Training state on disk: directories step-N that are there whole or not at all (see FORMAT.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dex {

// `fill` writes files into the directory it is given. That becomes root/step-<step>: files synced,
// MANIFEST.json last with the size and digest of each, one rename, the parent synced. Then all but
// the `keep` newest up to this step and step-<spared> are removed. When anything fails, what was
// there stays and nothing is left behind.
void save_checkpoint(const std::filesystem::path& root, std::int64_t step, int keep,
                     const std::function<void(const std::filesystem::path& dir)>& fill,
                     std::optional<std::int64_t> spared = {});

// Every step-N there, oldest first, whole or not.
std::vector<std::pair<std::int64_t, std::filesystem::path>> checkpoints_in(
    const std::filesystem::path& root);

// Removes all but the `keep` newest up to `step` and step-<spared>, and what a killed run left. One
// run writes to a root at a time.
void prune_checkpoints(const std::filesystem::path& root, std::int64_t step, int keep,
                       std::optional<std::int64_t> spared = {});

struct CheckpointSearch {
  std::optional<std::int64_t> step;
  std::filesystem::path dir;             // of the newest whole one
  std::vector<std::string> passed_over;  // "path: reason", newer ones that did not verify
};
CheckpointSearch newest_checkpoint(const std::filesystem::path& root);  // a missing root holds none

// Every file against the manifest, no file more or less: Error(io) otherwise.
void verify_checkpoint(const std::filesystem::path& dir);

}  // namespace dex
