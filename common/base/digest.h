// SHA-256 of bytes and files, as 64 lower-case hexadecimal digits.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dex {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text);
  std::string hex();  // ends the digest; add nothing after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_of(std::string_view bytes);
// throws Error(io) naming path and errno
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace dex
