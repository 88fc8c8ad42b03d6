// Files that only some machines have. A test that needs one and does not find it prints "SKIPPED:
// reason" and returns.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

namespace dex::test {

inline std::optional<std::filesystem::path> shared(const std::string& relative) {
  const char* named = std::getenv("DEX_SHARED");
  const std::filesystem::path root =
      named ? named : std::filesystem::path(DEX_SOURCE_DIR) / ".." / "shared";
  if (std::filesystem::exists(root / relative)) return root / relative;
  std::cout << "SKIPPED: " << relative << " is not on this machine (looked under " << root.string()
            << ")\n";
  return std::nullopt;
}

// A file or directory the demo leaves behind, such as runs/demo/model.
inline std::optional<std::filesystem::path> demo(const std::string& relative) {
  const auto path = std::filesystem::path(DEX_SOURCE_DIR) / "runs" / "demo" / relative;
  if (std::filesystem::exists(path)) return path;
  std::cout << "SKIPPED: " << path.string() << " is not there; launch/demo makes it\n";
  return std::nullopt;
}

}  // namespace dex::test
