#include "common/base/tensor_digests.h"

#include "common/base/digest.h"
#include "common/base/start_thread.h"

namespace dex {
namespace {

constexpr std::size_t kMostBehind = std::size_t{1} << 30;

}  // namespace

TensorDigests::TensorDigests(int threads) {
  threads_.reserve(std::size_t(threads));
  try {
    for (int i = 0; i < threads; ++i)
      threads_.push_back(start_thread("digests of tensors", [this] { work(); }));
  } catch (...) {
    end();
    throw;
  }
}

TensorDigests::~TensorDigests() { end(); }

void TensorDigests::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
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
  if (failure_) std::rethrow_exception(failure_);
  return digests_;
}

void TensorDigests::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    take_next(lock);
  }
}

void TensorDigests::take_next(std::unique_lock<std::mutex>& lock) {
  const auto [name, bytes] = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  std::string hex;
  std::exception_ptr failure;
  try {
    Sha256 digest;
    digest.add(bytes);
    hex = digest.hex();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  digests_[name] = std::move(hex);
  if (failure && !failure_) failure_ = failure;
  --pending_;
  behind_ -= bytes.size();
  changed_.notify_all();
}

}  // namespace dex
