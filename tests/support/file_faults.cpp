// Built without any of the project's flags that would touch symbols: every function here takes the
// place of libc's.
#include "tests/support/file_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace dex::test {
namespace {

struct OpenFile {
  std::string path;
  int number;
};

struct Shim {
  std::mutex mutex;
  std::string root;  // with a slash behind; "" when idle
  int fail_at = 0, error = 0, lock_error = 0;
  FileFault fault;
  bool recording = false, skips_syncs = false;
  std::vector<FileCall> record;
  std::map<int, OpenFile> files;
  int openings = 0;

  Shim() {
    const char* root_named = std::getenv("DEX_FAULT_ROOT");
    const char* call = std::getenv("DEX_FAULT_CALL");
    const char* error_named = std::getenv("DEX_FAULT_ERRNO");
    if (const char* locks = std::getenv("DEX_FAULT_LOCK")) lock_error = std::atoi(locks);
    if (root_named && call && error_named)
      start(root_named, std::atoi(call), std::atoi(error_named));
  }
  void start(const std::string& at, int number, int with) {
    root = at;
    fail_at = number;
    error = with;
    fault = {};
    files.clear();
  }
  bool under_root(const std::string& path) const {
    return !root.empty() && path.compare(0, root.size(), root) == 0 &&
           (path.size() == root.size() || path[root.size()] == '/');
  }
  // Whether this call is the one, or comes behind it on a full disk.
  bool fails(const char* call, const std::string& path) {
    ++fault.calls;
    const bool writes = !std::strcmp(call, "write") || !std::strcmp(call, "mkdir");
    const bool full = fault.failed && error == ENOSPC && writes;
    if (fault.calls != fail_at && !full) return false;
    if (!fault.failed) fault.call = std::string(call) + " " + path;
    fault.failed = true;
    errno = error;
    return true;
  }
};

// Never destroyed: files are closed after static destructors, too.
Shim& shim() {
  static Shim& one = *new Shim;
  return one;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string absolute(const char* path, int directory = AT_FDCWD) {
  if (path[0] == '/') return path;
  char buffer[4096];
  ssize_t size;
  if (directory == AT_FDCWD) {
    if (!getcwd(buffer, sizeof buffer)) return path;
    size = static_cast<ssize_t>(std::strlen(buffer));
  } else {
    size = readlink(("/proc/self/fd/" + std::to_string(directory)).c_str(), buffer, sizeof buffer);
    if (size < 0) return path;
  }
  return std::string(buffer, std::size_t(size)) + "/" + path;
}

void note_opening(int fd, const std::string& path, int flags) {
  Shim& s = shim();
  s.files[fd] = {path, s.openings++};
  if (!s.recording) return;
  FileCall call{FileCall::open, path, "", s.files[fd].number};
  call.creates = (flags & O_CREAT) != 0;
  call.truncates = (flags & O_TRUNC) != 0;
  s.record.push_back(call);
}

int open_as(const char* name, const char* path, int flags, mode_t mode) {
  auto* real = next<int(const char*, int, ...)>(name);
  Shim& s = shim();
  if (s.root.empty()) return real(path, flags, mode);
  const std::lock_guard guard(s.mutex);
  const std::string whole = absolute(path);
  if (!s.under_root(whole)) return real(path, flags, mode);
  if (s.fails("open", whole)) return -1;
  const int fd = real(path, flags, mode);
  if (fd >= 0) note_opening(fd, whole, flags);
  return fd;
}

// `act(half)` does the call, all of it or the first half; null for a call on a file outside.
template <typename Act>
ssize_t write_as(int fd, std::size_t size, off_t offset, const void* bytes, const Act& act) {
  Shim& s = shim();
  if (s.root.empty()) return act(size);
  const std::lock_guard guard(s.mutex);
  const auto file = s.files.find(fd);
  if (file == s.files.end()) return act(size);
  const bool before = s.fault.failed;
  std::size_t allowed = size;
  if (s.fails("write", file->second.path)) {
    if (s.error != ENOSPC || before || size < 2) return -1;
    allowed = size / 2;  // the next one says that the disk is full
  }
  const std::uint64_t at = std::uint64_t(offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR));
  const bool appends = offset < 0 && (fcntl(fd, F_GETFL) & O_APPEND);
  struct stat status{};
  const std::uint64_t end = appends && fstat(fd, &status) == 0 ? std::uint64_t(status.st_size) : at;
  const ssize_t done = act(allowed);
  if (s.recording && done > 0) {
    FileCall call{FileCall::write, file->second.path, "", file->second.number};
    call.offset = end;
    call.bytes.assign(static_cast<const char*>(bytes), std::size_t(done));
    s.record.push_back(call);
  }
  return done;
}

template <typename Act>
int file_call(const char* name, FileCall::Kind kind, int fd, std::uint64_t offset, const Act& act) {
  Shim& s = shim();
  if (s.root.empty()) return act();
  const std::lock_guard guard(s.mutex);
  const auto file = s.files.find(fd);
  if (file == s.files.end()) return act();
  if (s.fails(name, file->second.path)) return -1;
  const int result = act();
  if (s.recording && result == 0) {
    FileCall call{kind, file->second.path, "", file->second.number};
    call.offset = offset;
    s.record.push_back(call);
  }
  return result;
}

template <typename Act>
int path_call(const char* name, FileCall::Kind kind, const std::string& path,
              const std::string& target, const Act& act) {
  Shim& s = shim();
  if (s.root.empty()) return act();
  const std::lock_guard guard(s.mutex);
  if (!s.under_root(path)) return act();
  if (kind != FileCall::remove && s.fails(name, path)) return -1;
  const int result = act();
  if (s.recording && result == 0) s.record.push_back({kind, path, target});
  return result;
}

}  // namespace

void fail_file_call(const std::filesystem::path& root, int number, int error) {
  const std::lock_guard guard(shim().mutex);
  shim().start(root.string(), number, error);
}

FileFault stop_failing() {
  const std::lock_guard guard(shim().mutex);
  shim().root.clear();
  return shim().fault;
}

void fail_locks(int error) { shim().lock_error = error; }

void skip_syncs() { shim().skips_syncs = true; }

void record_file_calls(const std::filesystem::path& root) {
  const std::lock_guard guard(shim().mutex);
  shim().start(root.string(), 0, 0);
  shim().record.clear();
  shim().recording = true;
}

void note_in_record(const std::string& text) {
  const std::lock_guard guard(shim().mutex);
  shim().record.push_back({FileCall::note, "", text});
}

std::vector<FileCall> stop_recording() {
  const std::lock_guard guard(shim().mutex);
  shim().root.clear();
  shim().recording = false;
  return std::move(shim().record);
}

}  // namespace dex::test

using namespace dex::test;

extern "C" {

#define DEX_OPEN(name)                         \
  int name(const char* path, int flags, ...) { \
    va_list more;                              \
    va_start(more, flags);                     \
    const mode_t mode = va_arg(more, mode_t);  \
    va_end(more);                              \
    return open_as(#name, path, flags, mode);  \
  }
DEX_OPEN(open)
DEX_OPEN(open64)
#undef DEX_OPEN
int __open_2(const char* path, int flags) { return open_as("open", path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_as("open64", path, flags, 0); }

ssize_t write(int fd, const void* bytes, size_t size) {
  return write_as(fd, size, -1, bytes, [&](std::size_t n) {
    return next<ssize_t(int, const void*, size_t)>("write")(fd, bytes, n);
  });
}
#define DEX_PWRITE(name, type)                                                           \
  ssize_t name(int fd, const void* bytes, size_t size, type offset) {                    \
    return write_as(fd, size, offset, bytes, [&](std::size_t n) {                        \
      return next<ssize_t(int, const void*, size_t, type)>(#name)(fd, bytes, n, offset); \
    });                                                                                  \
  }
DEX_PWRITE(pwrite, off_t)
DEX_PWRITE(pwrite64, off64_t)
#undef DEX_PWRITE

ssize_t read(int fd, void* bytes, size_t size) {
  auto* real = next<ssize_t(int, void*, size_t)>("read");
  Shim& s = shim();
  if (s.root.empty()) return real(fd, bytes, size);
  const std::lock_guard guard(s.mutex);
  const auto file = s.files.find(fd);
  return file != s.files.end() && s.fails("read", file->second.path) ? -1 : real(fd, bytes, size);
}

int sync_as(const char* name, int fd) {
  if (shim().root.empty() && shim().skips_syncs) return 0;
  return file_call("fsync", FileCall::sync, fd, 0,
                   [&] { return shim().skips_syncs ? 0 : next<int(int)>(name)(fd); });
}
int fsync(int fd) { return sync_as("fsync", fd); }
int fdatasync(int fd) { return sync_as("fdatasync", fd); }
int ftruncate(int fd, off_t size) {
  return file_call("ftruncate", FileCall::resize, fd, std::uint64_t(size),
                   [&] { return next<int(int, off_t)>("ftruncate")(fd, size); });
}
int ftruncate64(int fd, off64_t size) {
  return file_call("ftruncate", FileCall::resize, fd, std::uint64_t(size),
                   [&] { return next<int(int, off64_t)>("ftruncate64")(fd, size); });
}
int close(int fd) {
  auto* real = next<int(int)>("close");
  Shim& s = shim();
  if (s.root.empty()) return real(fd);
  const std::lock_guard guard(s.mutex);
  s.files.erase(fd);
  return real(fd);
}

int flock(int fd, int operation) {
  if (shim().lock_error == 0) return next<int(int, int)>("flock")(fd, operation);
  errno = shim().lock_error;
  return -1;
}
int rename(const char* from, const char* to) {
  return path_call("rename", FileCall::rename, absolute(from), absolute(to),
                   [&] { return next<int(const char*, const char*)>("rename")(from, to); });
}
int mkdir(const char* path, mode_t mode) {
  return path_call("mkdir", FileCall::make_directory, absolute(path), "",
                   [&] { return next<int(const char*, mode_t)>("mkdir")(path, mode); });
}
int unlink(const char* path) {
  return path_call("unlink", FileCall::remove, absolute(path), "",
                   [&] { return next<int(const char*)>("unlink")(path); });
}
int rmdir(const char* path) {
  return path_call("rmdir", FileCall::remove, absolute(path), "",
                   [&] { return next<int(const char*)>("rmdir")(path); });
}
int remove(const char* path) {
  return path_call("remove", FileCall::remove, absolute(path), "",
                   [&] { return next<int(const char*)>("remove")(path); });
}
int unlinkat(int directory, const char* path, int flags) {
  return path_call("unlinkat", FileCall::remove, absolute(path, directory), "", [&] {
    return next<int(int, const char*, int)>("unlinkat")(directory, path, flags);
  });
}

}  // extern "C"
