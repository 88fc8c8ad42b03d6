// A directory that one run has for itself.
#pragma once
#include <filesystem>

namespace dex {

// Held until it is destroyed, or the process ends.
class DirectoryLock {
 public:
  // Error(temporary) when somebody else has it. Error(io) where the file system has no locks,
  // unless `needed` is false: then a warning.
  explicit DirectoryLock(const std::filesystem::path& dir, bool needed = true);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int file_;
};

}  // namespace dex
