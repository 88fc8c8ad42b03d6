// HDF5 in the one way this project uses it: V110 format bounds, fletcher32 on every data set, one
// thread at a time. No HDF5 header is needed to include this one. All failures are Error(io) naming
// the path and the object.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dex {

class H5Writer {
 public:
  // Writes under a temporary name; close() fsyncs and renames. Destroyed without close(), it leaves
  // nothing.
  explicit H5Writer(const std::filesystem::path& path);
  ~H5Writer();
  H5Writer(const H5Writer&) = delete;
  H5Writer& operator=(const H5Writer&) = delete;

  // One-dimensional and growing: append as often as needed. Element type from the span.
  void append(const std::string& name, std::span<const std::uint32_t> values);
  void append(const std::string& name, std::span<const std::uint64_t> values);
  void append(const std::string& name, std::span<const std::uint8_t> values);
  // Whole arrays of any rank.
  void write(const std::string& name, std::span<const std::int32_t> values,
             std::vector<std::uint64_t> shape);
  void write(const std::string& name, std::span<const float> values,
             std::vector<std::uint64_t> shape);
  void attribute(const std::string& name, const std::string& value);
  void attribute(const std::string& name, std::int64_t value);
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class H5Reader {
 public:
  // Error(io) when anything in the root group is no data set whose elements lie in the file itself
  // (soft and external links, external storage, virtual data sets, groups), or when a part of one
  // was never written.
  explicit H5Reader(const std::filesystem::path& path);
  ~H5Reader();
  H5Reader(const H5Reader&) = delete;
  H5Reader& operator=(const H5Reader&) = delete;

  std::vector<std::string> names() const;  // data sets of the root group, in name order
  std::vector<std::uint64_t> shape(const std::string& name) const;
  // Elements [first, first + count) of the flattened data set; the stored element type must match.
  std::vector<std::uint32_t> read_u32(const std::string& name, std::uint64_t first,
                                      std::uint64_t count) const;
  std::vector<std::uint64_t> read_u64(const std::string& name, std::uint64_t first,
                                      std::uint64_t count) const;
  std::vector<std::uint8_t> read_u8(const std::string& name, std::uint64_t first,
                                    std::uint64_t count) const;
  std::vector<std::int32_t> read_i32(const std::string& name) const;
  std::vector<float> read_f32(const std::string& name) const;
  void read_through() const;  // all of it: Error(io) when a checksum does not fit
  std::string text_attribute(const std::string& name) const;
  std::int64_t int_attribute(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dex
