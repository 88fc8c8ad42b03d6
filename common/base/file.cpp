#include "common/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/base/error.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

// Closes on every path out; release() hands the descriptor to a checked close.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : path_(path), fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    require(fd_ >= 0, ExitCode::io, "{}: cannot be opened: {}", path.string(),
            std::strerror(errno));
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = write(fd_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      require(done >= 0, ExitCode::io, "{}: cannot be written: {}", path_.string(),
              std::strerror(errno));
      bytes.remove_prefix(done);
    }
  }
  void sync() {
    // on its own line: arguments of one call are evaluated in any order
    const bool synced = fsync(fd_) == 0;
    require(synced, ExitCode::io, "{}: cannot be synced: {}", path_.string(), std::strerror(errno));
  }
  int fd() const { return fd_; }

 private:
  fs::path path_;
  int fd_;
};

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string read_file(const fs::path& path) {
  require(fs::exists(path), ExitCode::usage, "{}: no such file", path.string());
  require(fs::is_regular_file(path), ExitCode::usage, "{}: not a file", path.string());
  const Descriptor file(path, O_RDONLY);
  std::string bytes;
  bytes.reserve(fs::file_size(path));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(file.fd(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::io, "{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (got == 0) return bytes;
    bytes.append(buffer, std::size_t(got));
  }
}

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, std::span(&bytes, 1));
}

void write_file(const fs::path& path, std::span<const std::string_view> pieces) {
  const fs::path temporary = path.string() + ".tmp-" + std::to_string(getpid());
  try {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    for (const std::string_view piece : pieces) file.write_all(piece);
    file.sync();
    rename_durably(temporary, path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

void append_file(const fs::path& path, std::string_view bytes) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_APPEND);
  const off_t before = lseek(file.fd(), 0, SEEK_END);
  try {
    file.write_all(bytes);
  } catch (...) {
    const int ignored = ftruncate(file.fd(), before);
    (void)ignored;
    throw;
  }
}

void remove_temporaries(const fs::path& path) {
  std::error_code error;
  const std::string start = path.filename().string() + ".tmp-";
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(parent_of(path), error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with(start)) found.push_back(entry->path());
  for (const fs::path& temporary : found) fs::remove(temporary, error);
}

void sync_file(const fs::path& path) { Descriptor(path, O_RDONLY).sync(); }
void sync_directory(const fs::path& directory) {
  Descriptor(directory, O_RDONLY | O_DIRECTORY).sync();
}

void rename_durably(const fs::path& from, const fs::path& to) {
  const bool renamed = rename(from.c_str(), to.c_str()) == 0;
  require(renamed, ExitCode::io, "{}: cannot be renamed to {}: {}", from.string(), to.string(),
          std::strerror(errno));
  sync_directory(parent_of(to));
}

void replace_directory(const fs::path& from, const fs::path& to) {
  sync_directory(from);
  if (!fs::exists(to)) return rename_durably(from, to);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    fs::remove_all(to);
    return rename_durably(from, to);
  }
  sync_directory(parent_of(to));
  fs::remove_all(from);  // the old content, by now
}

void make_directory(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> made;
  for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    made.push_back(at);
  try {
    fs::create_directories(path, error);
    require(!error && fs::is_directory(path), ExitCode::io, "{}: cannot be made a directory: {}",
            path.string(), error ? error.message() : "something else stands there");
    const bool writable = access(path.c_str(), W_OK) == 0;
    require(writable, ExitCode::io, "{}: cannot be written to: {}", path.string(),
            std::strerror(errno));
    for (const fs::path& directory : made) sync_directory(parent_of(directory));
  } catch (...) {
    // the deepest first; none that holds something
    for (const fs::path& directory : made) fs::remove(directory, error);
    throw;
  }
}

}  // namespace dex
