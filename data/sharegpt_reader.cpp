#include "data/sharegpt_reader.h"

#include <fcntl.h>
#include <unistd.h>

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

void SharegptReader::open_array() {
  opened_ = true;
  for (int byte : {0xef, 0xbb, 0xbf})  // a byte order mark
    if (source_->peek() == byte) source_->take();
  const int c = skip_space();
  require(c != -1, ExitCode::io, "{}: empty: {} bytes, wanted a JSON array of conversations",
          path_.string(), file_size_);
  require(c == '[', ExitCode::io,
          "{}: starts with {} at byte {}, wanted a JSON array of conversations", path_.string(),
          quoted(c), offset());
  source_->take();
}

std::nullopt_t SharegptReader::stop_at_cut(std::uint64_t record_offset) {
  cut_ = Cut{records_, record_offset, offset()};
  ended_ = true;
  return std::nullopt;
}

std::optional<RawRecord> SharegptReader::next() {
  if (ended_) return std::nullopt;
  if (!opened_) open_array();
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
