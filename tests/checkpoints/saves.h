// Checkpoints of known content.
#pragma once
#include <filesystem>
#include <set>
#include <string>

#include "checkpoints/checkpoint.h"
#include "common/base/file.h"

namespace dex::test {

inline std::string weights_of(std::int64_t step, std::size_t size = 20000) {
  std::string bytes(size, char('a' + step % 26));
  bytes += std::to_string(step);
  return bytes;
}

inline void save_step(const std::filesystem::path& root, std::int64_t step, int keep = 3) {
  save_checkpoint(root, step, keep, [&](const std::filesystem::path& dir) {
    write_file(dir / "weights", weights_of(step));
    write_file(dir / "state.json", "{\"step\": " + std::to_string(step) + "}");
  });
}

inline std::set<std::string> names_in(const std::filesystem::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    names.insert(entry.path().filename().string());
  return names;
}

}  // namespace dex::test
