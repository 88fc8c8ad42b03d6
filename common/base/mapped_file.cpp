#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/mapped_file_fault.h"

namespace dex {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  require(std::filesystem::exists(path), ExitCode::usage, "{}: no such file", path.string());
  require(std::filesystem::is_regular_file(path), ExitCode::usage, "{}: not a file", path.string());
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, ExitCode::io, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status{};
  void* mapped = MAP_FAILED;
  int error = 0;
  if (fstat(file, &status) != 0) {
    error = errno;
  } else if (status.st_size > 0) {  // an empty range cannot be mapped
    mapped = mmap(nullptr, std::size_t(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  close(file);
  require(error == 0, ExitCode::io, "{}: cannot be mapped: {}", path.string(),
          std::strerror(error));
  identity_ = {status.st_dev, status.st_ino, std::uint64_t(status.st_size), status.st_mtim.tv_sec,
               status.st_mtim.tv_nsec};
  if (mapped == MAP_FAILED) return;
  data_ = static_cast<const std::byte*>(mapped);
  size_ = std::size_t(status.st_size);
  watched_ = watch_for_faults(bytes(), path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      watched_(std::exchange(other.watched_, nullptr)),
      path_(std::move(other.path_)),
      identity_(other.identity_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(watched_, other.watched_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  return *this;
}

MappedFile::~MappedFile() {
  end_watch(watched_);
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::require_unchanged() const {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0 || now.st_dev != identity_.device ||
      now.st_ino != identity_.inode)
    return;
  require(std::uint64_t(now.st_size) == identity_.size, ExitCode::io,
          "{}: cut or grown while it was being read: {} bytes, {} when it was opened",
          path_.string(), now.st_size, identity_.size);
  require(now.st_mtim.tv_sec == identity_.seconds && now.st_mtim.tv_nsec == identity_.nanoseconds,
          ExitCode::io, "{}: written to while it was being read", path_.string());
}

}  // namespace dex
