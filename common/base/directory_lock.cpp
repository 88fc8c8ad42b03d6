#include "common/base/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/error.h"

namespace dex {

DirectoryLock::DirectoryLock(const std::filesystem::path& dir)
    : file_(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require(file_ >= 0, ExitCode::io, "{}: cannot be opened: {}", dir.string(), std::strerror(errno));
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  close(file_);
  fail(ExitCode::temporary, "{}: another run uses it", dir.string());
}

DirectoryLock::~DirectoryLock() { close(file_); }

}  // namespace dex
