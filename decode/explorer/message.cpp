#include "decode/explorer/message.h"

#include <cstring>

#include "common/base/error.h"

namespace dex {
namespace {

void put(Bytes& to, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

template <typename T>
void put_list(Bytes& to, const std::vector<T>& values) {
  const auto count = std::uint32_t(values.size());
  put(to, &count, sizeof count);
  put(to, values.data(), sizeof(T) * values.size());
}

class Cursor {
 public:
  explicit Cursor(const Bytes& bytes) : bytes_(bytes) {}
  bool at_end() const { return at_ == bytes_.size(); }

  void take(void* to, std::size_t size) {
    require(bytes_.size() - at_ >= size, ExitCode::bug,
            "a message of {} bytes ends early, wanted {} at {}", bytes_.size(), size, at_);
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  template <typename T>
  std::vector<T> take_list() {
    std::uint32_t count = 0;
    take(&count, sizeof count);
    require((bytes_.size() - at_) / sizeof(T) >= count, ExitCode::bug,
            "a message claims {} values, {} bytes are left", count, bytes_.size() - at_);
    std::vector<T> values(count);
    take(values.data(), sizeof(T) * count);
    return values;
  }

 private:
  const Bytes& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Bytes pack_rows(const at::Tensor& h, const std::vector<std::int64_t>& which) {
  const auto row = std::size_t(h.size(1));
  Bytes message;
  message.reserve(which.size() * row * sizeof(float));
  for (std::int64_t i : which)
    put(message, h.data_ptr<float>() + std::size_t(i) * row, row * sizeof(float));
  return message;
}

at::Tensor unpack_rows(const Bytes& message, std::int64_t hidden) {
  const auto row = std::size_t(hidden) * sizeof(float);
  require(message.size() % row == 0, ExitCode::bug, "a message of {} bytes, wanted rows of {}",
          message.size(), row);
  at::Tensor h = at::empty({std::int64_t(message.size() / row), hidden});
  if (!message.empty()) std::memcpy(h.data_ptr(), message.data(), message.size());
  return h;
}

Bytes pack_answers(const std::vector<ExitAnswer>& answers) {
  Bytes message;
  for (const ExitAnswer& a : answers) {
    put_list(message, a.tokens);
    put_list(message, a.probabilities);
    put_list(message, a.asked);
    put(message, &a.gap, sizeof a.gap);
    put(message, &a.hash, sizeof a.hash);
  }
  return message;
}

std::vector<ExitAnswer> unpack_answers(const Bytes& message) {
  std::vector<ExitAnswer> answers;
  for (Cursor cursor(message); !cursor.at_end();) {
    ExitAnswer& a = answers.emplace_back();
    a.tokens = cursor.take_list<Token>();
    a.probabilities = cursor.take_list<float>();
    a.asked = cursor.take_list<float>();
    cursor.take(&a.gap, sizeof a.gap);
    cursor.take(&a.hash, sizeof a.hash);
  }
  return answers;
}

}  // namespace dex
