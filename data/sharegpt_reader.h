// A ShareGPT file, one JSON array of any size, record by record in memory bounded by its largest
// record.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace dex {

struct RawRecord {
  std::uint64_t number = 0;  // counts from 0
  std::uint64_t offset = 0;  // of its first byte in the file
  std::string text;          // its bytes: brackets are balanced, nothing else is checked yet
};

struct Cut {                        // where a file ends before its array does
  std::uint64_t record = 0;         // the record that is missing or incomplete
  std::uint64_t record_offset = 0;  // where it starts, or would
  std::uint64_t end = 0;            // bytes in the file
};

class SharegptReader {
 public:
  // Error(usage) when missing, Error(io) when it cannot be read or is no JSON array.
  explicit SharegptReader(const std::filesystem::path& path);
  ~SharegptReader();

  // The next whole record; nothing after the last one, or where the file is cut. Bytes that no cut
  // explains (after the array, or in place of a comma) are Error(io) with their offset. Reads no
  // further than the record it returns.
  std::optional<RawRecord> next();

  const std::optional<Cut>& cut() const { return cut_; }
  std::uint64_t offset() const;  // bytes used so far
  std::uint64_t file_size() const { return file_size_; }
  std::string digest_so_far();  // SHA-256 of those bytes; the last call to make

 private:
  class Source;
  int skip_space();  // the next byte that is none, unread; -1 at the end
  void open_array();
  std::string balanced_text();
  std::string scalar_text();
  std::nullopt_t stop_at_cut(std::uint64_t record_offset);

  std::filesystem::path path_;
  std::unique_ptr<Source> source_;
  std::uint64_t file_size_ = 0, records_ = 0;
  std::optional<Cut> cut_;
  bool opened_ = false, ended_ = false;
};

}  // namespace dex
