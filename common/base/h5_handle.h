// What the writer and the reader of HDF5 share. No HDF5 header is needed to include this one: the
// library's ids are
// 64-bit integers.
#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

namespace dex::h5 {

// The library keeps global state whatever its build says about threads: every call, handles'
// closing included, happens under this lock.
std::mutex& lock();

// Before any other call.
void start_library();

// Throws Error(io) with the path, the object and the library's innermost reason.
[[noreturn]] void fail_at(const std::filesystem::path& path, const std::string& object,
                          const char* what);

// An owned id. Lives inside the lock only, or in a State whose destructor takes it.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  std::int64_t get() const { return id_; }
  bool good() const { return id_ >= 0; }
  int close() { return id_ >= 0 ? close_(std::exchange(id_, -1)) : 0; }

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

// The library's type for elements as they are stored: little-endian, of exactly this size.
template <typename T>
std::int64_t type_of();
template <>
std::int64_t type_of<std::uint8_t>();
template <>
std::int64_t type_of<std::uint32_t>();
template <>
std::int64_t type_of<std::uint64_t>();
template <>
std::int64_t type_of<std::int32_t>();
template <>
std::int64_t type_of<std::int64_t>();
template <>
std::int64_t type_of<float>();

Handle file_access();      // properties to create or open a file with
Handle data_set_access();  // and a data set

}  // namespace dex::h5
