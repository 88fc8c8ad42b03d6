#include "common/comm/messages.h"

#include "common/base/error.h"

namespace dex {

const char* name_of(Tag tag) {
  switch (tag) {
    case Tag::rows:
      return "hidden rows";
    case Tag::final_rows:
      return "final hidden rows";
    case Tag::gradients:
      return "sum of gradients";
    case Tag::equations:
      return "equations of the closed-form start";
    case Tag::report:
      return "report of a step";
    case Tag::decision:
      return "decision on a step";
    case Tag::answers:
      return "answers of exits";
    case Tag::exit_rows:
      return "rows of exits";
    case Tag::post:
      return "post of an explorer";
    case Tag::counts:
      return "counts of an evaluation";
    case Tag::state:
      return "weights and moments";
    case Tag::agreement:
      return "agreement on the run";
    case Tag::times:
      return "times of decoding rounds";
    case Tag::alive:
      return "work of rank 0";
  }
  return "unknown";
}

void Messages::doing(Tag tag) {
  transport_.doing(during_.empty() ? name_of(tag) : during_ + ", " + name_of(tag));
}

void Messages::send(Tag tag, Bytes message, int to) {
  doing(tag);
  message.push_back(std::byte(tag));  // behind the values, which stay aligned
  transport_.send(std::move(message), to);
}

Bytes Messages::receive(Tag tag, int from) {
  doing(tag);
  auto& of_tag = waiting_[{from, tag}];
  while (of_tag.empty()) {
    Bytes message = transport_.receive(from);
    require(!message.empty(), ExitCode::bug, "a message without a tag from rank {}", from);
    const Tag other = Tag(message.back());
    message.pop_back();
    waiting_[{from, other}].push_back(std::move(message));
  }
  Bytes message = std::move(of_tag.front());
  of_tag.pop_front();
  return message;
}

std::vector<Bytes> Messages::all_gather(Tag tag, Bytes mine) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) send(tag, mine, peer);
  std::vector<Bytes> all(size());
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) all[peer] = receive(tag, peer);
  all[rank()] = std::move(mine);
  return all;
}

}  // namespace dex
