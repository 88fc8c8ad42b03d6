// A whole file mapped for reading.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace dex {

class MappedFile {
 public:
  // Throws Error(usage) when the path is missing or no file, Error(io) naming path and errno when
  // it cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dex
