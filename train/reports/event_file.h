// Scalars for TensorBoard: an event file, which is a sequence of framed protobuf messages.
//   frame  length (u64), masked CRC-32C of it (u32), data, masked CRC-32C of the data (u32),
//          little-endian
//   data   Event {wall_time = 1 (double), step = 2 (int64), file_version = 3, summary = 5,
//          session_log = 7}
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dex {

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

class EventFile {
 public:
  // A new file in `dir`, which is made. It tells readers to forget what older files there say about
  // steps after `step`: an interrupted run wrote that and did not save it.
  EventFile(const std::filesystem::path& dir, std::int64_t step);
  // Error(io) when it does not reach the file
  void write(std::int64_t step, const Scalars& scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

std::uint32_t crc32c(std::string_view bytes);  // Castagnoli
std::string framed(std::string_view data);

}  // namespace dex
