// Links and board over a transport whose ranks are the explorers in order.
#pragma once
#include "common/comm/messages.h"
#include "decode/explorer/answer_board.h"
#include "decode/explorer/row_link.h"

namespace dex {

class TransportLinks final : public RowLink, public AnswerBoard {
 public:
  TransportLinks(Transport& peers, std::int64_t hidden_size)
      : messages_(peers), hidden_size_(hidden_size) {}

  void send(const at::Tensor& h_RD, std::span<const int> which) override;
  at::Tensor receive() override;
  std::vector<Post> exchange(const Post& mine) override;
  at::Tensor gather(const at::Tensor& exit_rows_RD) override;

 private:
  Messages messages_;
  std::int64_t hidden_size_;
};

}  // namespace dex
