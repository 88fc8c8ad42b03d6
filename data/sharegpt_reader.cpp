#include "data/sharegpt_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/base/digest.h"
#include "common/base/error.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

// Far above any conversation. A lost bracket must not pull the rest of the file into memory, nor
// deep nesting its tree.
constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;
constexpr int kMaxDepth = 64;

bool is_space(int c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// The marks of UTF-16 and UTF-32, or what a bracket is in them.
bool is_wide(std::string_view start) {
  if (start.size() < 2) return false;
  return start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF") || start[0] == '\0' ||
         start[1] == '\0';
}

std::string quoted(int c) {
  return c >= 0x20 && c < 0x7f ? fmt::format("'{}'", char(c)) : fmt::format("byte {:#04x}", c);
}

// How deep in brackets a text stands, those inside strings left out.
class Nesting {
 public:
  // Goes on until the first bracket is closed or the bytes end; how many were used.
  std::size_t advance(std::string_view bytes) {
    std::size_t i = 0;
    while (i < bytes.size() && !(closed_ || depth_ > kMaxDepth)) step(bytes[i++]);
    return i;
  }
  bool closed() const { return closed_; }
  int depth() const { return depth_; }

 private:
  void step(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed_ = --depth_ == 0;
    }
  }

  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, closed_ = false;
};

}  // namespace

// The file's bytes one by one, counted and digested as they are used.
class SharegptReader::Source {
 public:
  explicit Source(const fs::path& path)
      : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), buffer_(1 << 20) {
    require(file_ >= 0, ExitCode::io, "{}: cannot be opened: {}", path.string(),
            std::strerror(errno));
  }
  ~Source() { close(file_); }

  // Bytes at hand, not yet used; none at the end.
  std::string_view buffered() {
    if (at_ == size_) refill();
    return {buffer_.data() + at_, size_ - at_};
  }
  int peek() {
    const auto bytes = buffered();
    return bytes.empty() ? -1 : static_cast<unsigned char>(bytes.front());
  }
  void take(std::size_t bytes = 1) { at_ += bytes; }
  std::uint64_t offset() const { return before_ + at_; }
  std::string digest() {
    digest_.add(std::string_view(buffer_.data(), at_));
    return digest_.hex();
  }

 private:
  void refill() {
    digest_.add(std::string_view(buffer_.data(), size_));
    before_ += size_;
    at_ = size_ = 0;
    ssize_t got;
    do got = read(file_, buffer_.data(), buffer_.size());
    while (got < 0 && errno == EINTR);
    require(got >= 0, ExitCode::io, "{}: cannot be read at byte {}: {}", path_.string(), before_,
            std::strerror(errno));
    size_ = std::size_t(got);
  }

  fs::path path_;
  int file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, size_ = 0;
  std::uint64_t before_ = 0;
  Sha256 digest_;
};

SharegptReader::SharegptReader(const fs::path& path) : path_(path) {
  require(fs::exists(path), ExitCode::usage, "{}: no such file", path.string());
  require(fs::is_regular_file(path), ExitCode::usage, "{}: not a file", path.string());
  file_size_ = fs::file_size(path);
  source_ = std::make_unique<Source>(path);
}

SharegptReader::~SharegptReader() = default;

std::uint64_t SharegptReader::offset() const { return source_->offset(); }
std::string SharegptReader::digest_so_far() { return source_->digest(); }

int SharegptReader::skip_space() {
  while (is_space(source_->peek())) source_->take();
  return source_->peek();
}

void SharegptReader::find_form() {
  constexpr const char* kWanted = "a JSON array of conversations, or one a line";
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  opened_ = true;
  const auto start = source_->buffered();
  require(!is_wide(start), ExitCode::io, "{}: is UTF-16 or UTF-32 by its first bytes, wanted UTF-8",
          path_.string());
  if (start.starts_with(kByteOrderMark)) source_->take(kByteOrderMark.size());
  const int c = skip_space();
  require(c != -1, ExitCode::io, "{}: empty: {} bytes, wanted {}", path_.string(), file_size_,
          kWanted);
  require(c == '[' || c == '{', ExitCode::io, "{}: starts with {} at byte {}, wanted {}",
          path_.string(), quoted(c), offset(), kWanted);
  lines_ = c == '{';
  if (!lines_) source_->take();
}

std::nullopt_t SharegptReader::stop_at_cut(std::uint64_t record_offset) {
  cut_ = Cut{records_, record_offset, offset()};
  ended_ = true;
  return std::nullopt;
}

std::optional<RawRecord> SharegptReader::next() {
  if (ended_) return std::nullopt;
  if (!opened_) find_form();
  return lines_ ? next_line() : next_element();
}

std::optional<RawRecord> SharegptReader::next_element() {
  int c = skip_space();
  if (c == -1) return stop_at_cut(offset());
  if (c == ']') {
    source_->take();
    ended_ = true;
    c = skip_space();
    require(c == -1, ExitCode::io, "{}: {} at byte {}, after the end of the array of {} records",
            path_.string(), quoted(c), offset(), records_);
    return std::nullopt;
  }
  if (records_ > 0) {
    require(c == ',', ExitCode::io, "{}: {} at byte {}, wanted ',' or ']' after record {}",
            path_.string(), quoted(c), offset(), records_ - 1);
    source_->take();
    c = skip_space();
    if (c == -1) return stop_at_cut(offset());
  }
  require(c != ',' && c != ']' && c != '}' && c != ':', ExitCode::io,
          "{}: {} at byte {}, wanted record {}", path_.string(), quoted(c), offset(), records_);
  RawRecord record{records_, offset(), ""};
  record.text = c == '{' || c == '[' ? balanced_text() : scalar_text();
  if (record.text.empty()) return stop_at_cut(record.offset);
  ++records_;
  return record;
}

std::optional<RawRecord> SharegptReader::next_line() {
  if (skip_space() == -1) {
    ended_ = true;
    return std::nullopt;
  }
  RawRecord record{records_, offset(), ""};
  std::string& text = record.text;
  const bool has_end = take_line(text);
  while (is_space(text.back())) text.pop_back();
  Nesting nesting;
  const bool balanced = nesting.advance(text) == text.size() && nesting.closed();
  require(nesting.depth() <= kMaxDepth, ExitCode::io,
          "{}: record {} at byte {} nests deeper than {}", path_.string(), records_, record.offset,
          kMaxDepth);
  if (!has_end && !balanced) return stop_at_cut(record.offset);
  require(records_ > 0 || text.ends_with('}'), ExitCode::io,
          "{}: the object at byte {} does not end in its line, wanted a JSON array of "
          "conversations, or one a line",
          path_.string(), record.offset);
  ++records_;
  return record;
}

// False when the file ends before the line does.
bool SharegptReader::take_line(std::string& text) {
  for (auto bytes = source_->buffered(); !bytes.empty(); bytes = source_->buffered()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t used = std::min(end, bytes.size());
    text += bytes.substr(0, used);
    source_->take(used);
    require(text.size() <= kMaxRecordBytes, ExitCode::io,
            "{}: record {} before byte {} is longer than {} bytes", path_.string(), records_,
            offset(), kMaxRecordBytes);
    if (end != std::string_view::npos) return true;
  }
  return false;
}

// Up to the bracket that closes the first one; "" when the file ends before.
std::string SharegptReader::balanced_text() {
  std::string text;
  Nesting nesting;
  for (auto bytes = source_->buffered(); !bytes.empty(); bytes = source_->buffered()) {
    const std::size_t used = nesting.advance(bytes);
    require(nesting.depth() <= kMaxDepth, ExitCode::io,
            "{}: record {} nests deeper than {} before byte {}", path_.string(), records_,
            kMaxDepth, offset() + used);
    text += bytes.substr(0, used);
    source_->take(used);
    if (nesting.closed()) return text;
    require(text.size() <= kMaxRecordBytes, ExitCode::io,
            "{}: record {} before byte {} is longer than {} bytes", path_.string(), records_,
            offset(), kMaxRecordBytes);
  }
  return "";
}

// A record that is no object: a string, or what stands before the next separator. "" when the file
// ends first.
std::string SharegptReader::scalar_text() {
  std::string text;
  bool in_string = false, escaped = false;
  for (int c = source_->peek(); c != -1; c = source_->peek()) {
    if (!in_string && (c == ',' || c == ']' || is_space(c))) return text;
    source_->take();
    text.push_back(char(c));
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
    require(text.size() <= kMaxRecordBytes, ExitCode::io, "{}: record {} is longer than {} bytes",
            path_.string(), records_, kMaxRecordBytes);
  }
  return "";
}

}  // namespace dex
