#include "common/base/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/error.h"
#include "common/base/log.h"

namespace dex {
namespace {

// Some file systems let the kernel's own "not supported" through, which libc has no words for.
constexpr int kNotSupportedByKernel = 524;

std::string reason_of(int error) {
  return error == kNotSupportedByKernel ? "operation not supported (524)" : std::strerror(error);
}

int lock(int file) {
  int result;
  do {
    result = flock(file, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::filesystem::path& dir, bool needed)
    : file_(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require(file_ >= 0, ExitCode::io, "{}: cannot be opened: {}", dir.string(), std::strerror(errno));
  const int error = lock(file_);
  if (error == 0) return;
  if (error != EWOULDBLOCK && !needed) {
    spdlog::warn("{}: its file system gives no lock ({}); a second run there would do harm",
                 dir.string(), reason_of(error));
    return;
  }
  close(file_);
  require(error != EWOULDBLOCK, ExitCode::temporary, "{}: another run uses it", dir.string());
  fail(ExitCode::io,
       "{}: its file system gives no lock: {}; a directory of another file system is safe, or "
       "--allow-unlocked while no other run uses this one",
       dir.string(), reason_of(error));
}

DirectoryLock::~DirectoryLock() { close(file_); }

}  // namespace dex
