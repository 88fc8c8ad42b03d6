// A rank of a training run among the others: its place, and tensors and texts between them. One
// rank alone is the same code without a transport.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/messages.h"
#include "train/ranks/rank_layout.h"

namespace dex {

class GpuLink;

class RankMessages {
 public:
  // `transport` has the ranks of the layout, and is null where there is one.
  explicit RankMessages(RankLayout layout, Transport* transport = nullptr);

  // From now on hidden rows and gradients go by it and arrive on its device, all else goes by the
  // transport and arrives on the CPU. All ranks call it. Of each of these tags one message at most
  // goes each way between two ranks.
  void use_gpu_link(GpuLink& link) { gpu_link_ = &link; }

  const RankLayout& layout() const { return layout_; }
  bool alone() const { return layout_.world == 1; }
  bool leads() const { return layout_.rank == 0; }  // writes files, decides, reports
  bool first() const { return layout_.pipeline_rank() == 0; }
  bool last() const { return layout_.pipeline_rank() == layout_.pipeline - 1; }

  void at(std::int64_t step);  // for messages of errors

  // which must not change until it was received
  void send(Tag tag, const at::Tensor& tensor, int to);
  // Error(bug) when it has another size
  at::Tensor receive(Tag tag, int from, at::IntArrayRef shape, at::ScalarType type = at::kFloat);
  void send(Tag tag, const std::string& text, int to);
  std::string receive_text(Tag tag, int from);

  // A text of the leading rank's, on all ranks. All call it; others need not give one.
  std::string from_leader(Tag tag, const std::string& text = {});

  // The others wait for the leading rank's long work: it tells them now and then that it goes on.
  void keep_alive() { from_leader(Tag::alive); }

 private:
  Messages& messages(Tag tag);  // Error(bug) when the rank is alone

  RankLayout layout_;
  std::optional<Messages> messages_;
  GpuLink* gpu_link_ = nullptr;
};

RankMessages& one_rank();  // nobody else; its layout says nothing of stages

}  // namespace dex
