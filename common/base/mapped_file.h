// A whole file mapped for reading.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace dex {

struct WatchedRange;

class MappedFile {
 public:
  // Throws Error(usage) when the path is missing or no file, Error(io) naming path and errno when
  // it cannot be mapped. A file that is cut while it is mapped ends the process with ExitCode::io
  // and its path once it is read behind its new end (mapped_file_fault.h).
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Error(io) when the file has been written to since it was opened. One that another took the
  // place of has not: the bytes here are still those of the one that was opened.
  void require_unchanged() const;

 private:
  struct Identity {  // of what was opened
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t seconds = 0, nanoseconds = 0;  // of the last change
  };
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  WatchedRange* watched_ = nullptr;
  std::filesystem::path path_;
  Identity identity_;
};

}  // namespace dex
