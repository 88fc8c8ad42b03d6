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
  void take_one(T& value) {
    take(&value, sizeof value);
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

template <typename T>
void put_one(Bytes& to, const T& value) {
  put(to, &value, sizeof value);
}

void put_answer(Bytes& message, const ExitAnswer& a) {
  put_one(message, a.reference);
  put_list(message, a.tokens);
  put_list(message, a.probabilities);
  put_list(message, a.asked);
  put_one(message, a.gap);
  put_one(message, a.hash);
  put_one(message, a.numbers);
}

void put_slices(Bytes& message, const RowSlices& s) {
  put_list(message, s.slices);
  put_list(message, s.keys);
  put_list(message, s.best);
  put_list(message, s.asked);
}

void put_event(Bytes& message, const Event& e) {
  put_one(message, e.kind);
  put_one(message, e.sequence);
  put_list(message, e.prompt);
  put_one(message, e.limits);
}

ExitAnswer take_answer(Cursor& from) {
  ExitAnswer a;
  from.take_one(a.reference);
  a.tokens = from.take_list<Token>();
  a.probabilities = from.take_list<float>();
  a.asked = from.take_list<float>();
  from.take_one(a.gap);
  from.take_one(a.hash);
  from.take_one(a.numbers);
  return a;
}

RowSlices take_slices(Cursor& from) {
  RowSlices s;
  s.slices = from.take_list<VocabSlice>();
  s.keys = from.take_list<std::int32_t>();
  s.best = from.take_list<RankKey>();
  s.asked = from.take_list<float>();
  return s;
}

Event take_event(Cursor& from) {
  Event e;
  from.take_one(e.kind);
  from.take_one(e.sequence);
  e.prompt = from.take_list<Token>();
  from.take_one(e.limits);
  return e;
}

}  // namespace

Bytes pack_rows(const at::Tensor& h, std::span<const int> which) {
  const std::size_t row = h.size(1);
  Bytes message;
  message.reserve(which.size() * row * sizeof(float));
  for (const int i : which) put(message, h.data_ptr<float>() + i * row, row * sizeof(float));
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

Bytes pack_post(const Post& post) {
  Bytes message;
  put_one(message, std::uint32_t(post.answers.size()));
  for (const ExitAnswer& answer : post.answers) put_answer(message, answer);
  put_one(message, std::uint32_t(post.slices.size()));
  for (const RowSlices& of_exit : post.slices) put_slices(message, of_exit);
  for (const Event& event : post.events) put_event(message, event);
  return message;
}

Post unpack_post(const Bytes& message) {
  Post post;
  Cursor from(message);
  std::uint32_t answers = 0, exits = 0;
  from.take_one(answers);
  for (; answers > 0; --answers) post.answers.push_back(take_answer(from));
  from.take_one(exits);
  for (; exits > 0; --exits) post.slices.push_back(take_slices(from));
  while (!from.at_end()) post.events.push_back(take_event(from));
  return post;
}

}  // namespace dex
