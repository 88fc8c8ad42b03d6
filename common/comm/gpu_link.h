// Tensors from one rank's GPU to another's: what of a training run's messages is large. Their sizes
// are known to both ends, so nothing but the values travels.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace dex {

class GpuLink {
 public:
  // Returns when `done` says so; throws when that throws, when `peer` is lost before, or silent for
  // too long.
  using Wait = std::function<void(int peer, const std::function<bool()>& done)>;

  // A communicator of NCCL runs what two ranks ask of it in order, sends and receives alike, and a
  // send ends when it is received. So there are two groups, and each goes one way: `up` to higher
  // ranks, `down` to lower ones. Then no order is at odds with another, as long as every rank
  // receives from another in the order in which that one sends.
  GpuLink(c10::intrusive_ptr<c10d::Backend> up, c10::intrusive_ptr<c10d::Backend> down,
          at::Device device, Wait wait);
  ~GpuLink();  // gives up what was sent and never received
  GpuLink(const GpuLink&) = delete;

  // Makes the connections, or else the first message to a peer would wait for that peer. All ranks
  // call it, naming each other; it may wait for ever.
  void connect(std::vector<int> peers);

  // Queued: the tensor must not change from now on. Empty ones do not travel.
  void send(const at::Tensor& tensor, int to);
  at::Tensor receive(int from, at::IntArrayRef shape, at::ScalarType type);  // when it is there

  at::Device device() const { return device_; }

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  c10d::Backend& way(int from, int to) { return from < to ? *up_ : *down_; }

  c10::intrusive_ptr<c10d::Backend> up_, down_;
  at::Device device_;
  Wait wait_;
  int rank_;
  std::deque<std::pair<at::Tensor, Work>> sending_;
};

}  // namespace dex
