#include "common/base/tensor_digests.h"

#include "common/base/digest.h"

namespace dex {
namespace {

constexpr std::size_t kMostBehind = std::size_t{1} << 30;

}  // namespace

TensorDigests::TensorDigests(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

TensorDigests::~TensorDigests() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

void TensorDigests::add(const std::string& name, std::span<const std::byte> bytes) {
  std::unique_lock lock(mutex_);
  if (!digests_.try_emplace(name).second) return;
  changed_.wait(lock, [&] { return behind_ < kMostBehind; });
  ++pending_;
  behind_ += bytes.size();
  waiting_.emplace_back(name, bytes);
  changed_.notify_all();
}

std::map<std::string, std::string> TensorDigests::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_ == 0; });
  return digests_;
}

void TensorDigests::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const auto [name, bytes] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Sha256 digest;
    digest.add(bytes);
    std::string hex = digest.hex();
    lock.lock();
    digests_[name] = std::move(hex);
    --pending_;
    behind_ -= bytes.size();
    changed_.notify_all();
  }
}

}  // namespace dex
