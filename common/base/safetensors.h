// safetensors files: mapped for reading, written whole or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dex {

enum class StoredType : std::uint8_t { f32, f16, bf16, f64, i64, i32, u8 };
const char* name_of(StoredType type);  // "F32", as the format spells it
std::size_t size_of(StoredType type);  // bytes of one element

struct StoredTensor {
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  // row-major, little-endian; aligned only as the file happens to be
  std::span<const std::byte> bytes;
};

// One file, or a sharded set named by model.safetensors.index.json. Header and sizes are checked in
// full at opening; nothing is allocated by a claimed size. Tensors live as long as the object. A
// file that is cut while it is read ends the process with ExitCode::io (mapped_file_fault.h).
class WeightFile {
 public:
  // A .safetensors file, or a directory with model.safetensors or an index. Throws Error(usage)
  // when missing, Error(io) when cut or malformed, naming path, expected and real size, with a hint
  // for pointers and web pages. Weight files that lie in the directory and are not read are told.
  static WeightFile open(const std::filesystem::path& path);
  WeightFile(WeightFile&&) noexcept;
  WeightFile& operator=(WeightFile&&) noexcept;
  ~WeightFile();

  const std::map<std::string, StoredTensor>& tensors() const;
  // Error(io) naming the tensor and the file
  const StoredTensor& at(const std::string& name) const;
  bool has(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  std::string origin() const;  // path, for messages

  // From now on other threads take the SHA-256 of the bytes of every tensor that at() gives.
  void take_digests();
  std::map<std::string, std::string> digests() const;  // of those, by name; waits for them
  void require_unchanged() const;                      // Error(io) when a file was written to

 private:
  struct State;
  explicit WeightFile(std::unique_ptr<State>);
  std::unique_ptr<State> state_;
};

// Durable (see write_file). Tensors in name order, data aligned to 64 bytes: equal input gives
// equal bytes.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, StoredTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace dex
