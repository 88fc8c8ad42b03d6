#include "decode/explorer/transport_links.h"

#include <numeric>

#include "decode/explorer/message.h"

namespace dex {

void TransportLinks::send(const at::Tensor& h, std::span<const int> which) {
  messages_.send(Tag::rows, pack_rows(h, which), messages_.rank() + 1);
}

at::Tensor TransportLinks::receive() {
  return unpack_rows(messages_.receive(Tag::rows, messages_.rank() - 1), hidden_size_);
}

std::vector<Post> TransportLinks::exchange(const Post& mine) {
  std::vector<Post> posts;
  for (const Bytes& message : messages_.all_gather(Tag::post, pack_post(mine)))
    posts.push_back(unpack_post(message));
  return posts;
}

at::Tensor TransportLinks::gather(const at::Tensor& exit_rows) {
  std::vector<int> every(std::size_t(exit_rows.size(0)));
  std::iota(every.begin(), every.end(), 0);
  Bytes rows;
  for (const Bytes& of_exit : messages_.all_gather(Tag::exit_rows, pack_rows(exit_rows, every)))
    rows.insert(rows.end(), of_exit.begin(), of_exit.end());
  return unpack_rows(rows, hidden_size_);
}

}  // namespace dex
