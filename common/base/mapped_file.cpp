#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"

namespace dex {

MappedFile::MappedFile(const std::filesystem::path& path) {
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
  if (mapped == MAP_FAILED) return;
  data_ = static_cast<const std::byte*>(mapped);
  size_ = std::size_t(status.st_size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace dex
