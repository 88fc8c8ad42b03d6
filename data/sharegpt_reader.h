// A ShareGPT file of any size, record by record in memory bounded by its largest record. Its first
// byte tells its form: one JSON array, or one object a line.
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
  std::string text;  // its bytes: of an array's, brackets are balanced; nothing else is checked yet
};

struct Cut {                        // where a file ends before its array or last line does
  std::uint64_t record = 0;         // the record that is missing or incomplete
  std::uint64_t record_offset = 0;  // where it starts, or would
  std::uint64_t end = 0;            // bytes in the file
};

class SharegptReader {
 public:
  // Error(usage) when missing, Error(io) when it cannot be read.
  explicit SharegptReader(const std::filesystem::path& path);
  ~SharegptReader();

  // The next whole record; nothing after the last one, or where the file is cut: inside the array,
  // or inside a last line that has no end. Error(io) when the file is neither an array nor one
  // object a line in UTF-8, and with their offset for bytes that no cut explains (after the array,
  // or in place of a comma). Reads no further than the record it returns.
  std::optional<RawRecord> next();

  const std::optional<Cut>& cut() const { return cut_; }
  std::uint64_t offset() const;  // bytes used so far
  std::uint64_t file_size() const { return file_size_; }
  std::string digest_so_far();  // SHA-256 of those bytes; the last call to make

 private:
  class Source;
  int skip_space();  // the next byte that is none, unread; -1 at the end
  void find_form();
  std::optional<RawRecord> next_element();
  std::optional<RawRecord> next_line();
  bool take_line(std::string& text);
  std::string balanced_text();
  std::string scalar_text();
  std::nullopt_t stop_at_cut(std::uint64_t record_offset);

  std::filesystem::path path_;
  std::unique_ptr<Source> source_;
  std::uint64_t file_size_ = 0, records_ = 0;
  std::optional<Cut> cut_;
  bool opened_ = false, ended_ = false, lines_ = false;
};

}  // namespace dex
