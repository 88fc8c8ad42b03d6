#include "decode/explorer/transport_links.h"

#include "decode/explorer/message.h"

namespace dex {

void TransportLinks::send(const at::Tensor& h, std::span<const int> which) {
  peers_.send(pack_rows(h, which), peers_.rank() + 1);
}

at::Tensor TransportLinks::receive() {
  return unpack_rows(peers_.receive(peers_.rank() - 1), hidden_size_);
}

std::vector<Post> TransportLinks::exchange(const Post& mine) {
  std::vector<Post> posts;
  for (const Bytes& message : peers_.all_gather(pack_post(mine)))
    posts.push_back(unpack_post(message));
  return posts;
}

}  // namespace dex
