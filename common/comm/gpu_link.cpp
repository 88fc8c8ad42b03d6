#include "common/comm/gpu_link.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <thread>

#include "common/base/log.h"
#include "common/base/start_thread.h"
#include "common/base/within.h"

namespace dex {
namespace {

using std::chrono::milliseconds;

constexpr int kTag = 0;
constexpr auto kGiveUp = milliseconds(5000);  // for communicators to end

bool completed(const c10::intrusive_ptr<c10d::Work>& work) {
  if (!work->isCompleted()) return false;
  if (const auto error = work->exception()) std::rethrow_exception(error);
  return true;
}

void abort(c10d::Backend& group) noexcept {
  try {
    group.abort();
  } catch (const std::exception& error) {
    spdlog::debug("a connection between GPUs ended with {}", error.what());
  }
}

}  // namespace

GpuLink::GpuLink(c10::intrusive_ptr<c10d::Backend> up, c10::intrusive_ptr<c10d::Backend> down,
                 at::Device device, Wait wait)
    : up_(std::move(up)),
      down_(std::move(down)),
      device_(device),
      wait_(std::move(wait)),
      rank_(up_->getRank()) {}

GpuLink::~GpuLink() {
  // Each in a thread of its own: the end of one may wait for what the other still sends.
  try {
    const auto ended = within(
        std::chrono::steady_clock::now() + kGiveUp, [up = std::move(up_), down = std::move(down_)] {
          std::thread other = start_thread("the end of a connection", [&] { abort(*up); });
          abort(*down);
          other.join();
          return true;
        });
    if (!ended) spdlog::warn("the connections between GPUs do not end; left as they are");
  } catch (const std::exception& error) {
    spdlog::warn("the connections between GPUs are left as they are: {}", error.what());
  }
}

void GpuLink::connect(std::vector<int> peers) {
  const c10::DeviceGuard here(device_);  // the caller may be another thread
  // So pairs connect in one order on all ranks, and none waits in a circle.
  std::sort(peers.begin(), peers.end());
  const auto exchange = [&](bool sends, int peer) {
    std::vector<at::Tensor> number{at::zeros({1}, device_)};
    const Work work = sends ? way(rank_, peer).send(number, peer, kTag)
                            : way(peer, rank_).recv(number, peer, kTag);
    while (!completed(work)) std::this_thread::sleep_for(milliseconds(1));
  };
  for (const int peer : peers) {
    exchange(/*sends=*/rank_ < peer, peer);
    exchange(/*sends=*/rank_ > peer, peer);
  }
}

void GpuLink::send(const at::Tensor& tensor, int to) {
  while (!sending_.empty() && sending_.front().second->isCompleted()) sending_.pop_front();
  if (tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors{tensor.to(device_).contiguous()};
  Work work = way(rank_, to).send(tensors, to, kTag);
  sending_.emplace_back(std::move(tensors.front()), std::move(work));
}

at::Tensor GpuLink::receive(int from, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<at::Tensor> tensors{at::empty(shape, at::TensorOptions(device_).dtype(type))};
  if (tensors.front().numel() > 0) {
    const Work work = way(from, rank_).recv(tensors, from, kTag);
    wait_(from, [&] { return completed(work); });
  }
  return std::move(tensors.front());
}

}  // namespace dex
