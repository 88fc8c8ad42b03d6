#include "train/ranks/rank_messages.h"

#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/comm/gpu_link.h"

namespace dex {
namespace {

bool is_large(Tag tag) {
  return tag == Tag::rows || tag == Tag::final_rows || tag == Tag::gradients;
}

Bytes copy_of(const void* data, std::size_t size) {
  Bytes bytes;
  bytes.reserve(size + 1);  // Messages appends the tag
  bytes.resize(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  return bytes;
}

}  // namespace

RankMessages::RankMessages(RankLayout layout, Transport* transport) : layout_(std::move(layout)) {
  if (!transport) return;
  messages_.emplace(*transport);
  at(0);
}

RankMessages& one_rank() {
  static RankMessages alone{RankLayout{}};
  return alone;
}

void RankMessages::at(std::int64_t step) {
  if (messages_) messages_->during(fmt::format("step {}", step + 1));
}

Messages& RankMessages::messages(Tag tag) {
  require(messages_.has_value(), ExitCode::bug, "one rank has nobody to exchange {} with",
          name_of(tag));
  return *messages_;
}

void RankMessages::send(Tag tag, const at::Tensor& tensor, int to) {
  if (gpu_link_ && is_large(tag)) {
    messages(tag).doing(tag);
    return gpu_link_->send(tensor, to);
  }
  const at::Tensor whole = tensor.cpu().contiguous();
  messages(tag).send(tag, copy_of(whole.data_ptr(), whole.nbytes()), to);
}

at::Tensor RankMessages::receive(Tag tag, int from, at::IntArrayRef shape, at::ScalarType type) {
  if (gpu_link_ && is_large(tag)) {
    messages(tag).doing(tag);
    return gpu_link_->receive(from, shape, type);
  }
  const Bytes message = messages(tag).receive(tag, from);
  at::Tensor tensor = at::empty(shape, type);
  require(tensor.nbytes() == message.size(), ExitCode::bug, "{} from rank {}: {} bytes, wanted {}",
          name_of(tag), from, message.size(), tensor.nbytes());
  if (!message.empty()) std::memcpy(tensor.data_ptr(), message.data(), message.size());
  return tensor;
}

void RankMessages::send(Tag tag, const std::string& text, int to) {
  messages(tag).send(tag, copy_of(text.data(), text.size()), to);
}

std::string RankMessages::receive_text(Tag tag, int from) {
  const Bytes message = messages(tag).receive(tag, from);
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

std::string RankMessages::from_leader(Tag tag, const std::string& text) {
  if (!leads()) return receive_text(tag, 0);
  for (int rank = 1; rank < layout_.world; ++rank) send(tag, text, rank);
  return text;
}

}  // namespace dex
