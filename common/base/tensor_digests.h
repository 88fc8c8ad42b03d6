// SHA-256 of tensors, taken by threads of its own while the caller does something else with them.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dex {

class TensorDigests {
 public:
  explicit TensorDigests(int threads);  // Error(temporary) where the system gives no more
  ~TensorDigests();                     // what is not taken yet is given up
  TensorDigests(const TensorDigests&) = delete;
  TensorDigests& operator=(const TensorDigests&) = delete;

  // The bytes must stay. A name that was added before is left. Waits while the threads are far
  // behind: what was read is not to leave the system's memory before its digest is taken.
  void add(const std::string& name, std::span<const std::byte> bytes);
  // By name, of all that were added; throws what a thread did.
  std::map<std::string, std::string> finish();

 private:
  void end();
  void work();
  void take_next(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::string, std::span<const std::byte>>> waiting_;
  std::map<std::string, std::string> digests_;  // "" until it is taken
  std::size_t pending_ = 0, behind_ = 0;        // tensors and bytes that wait or are under way
  bool ending_ = false;
  std::exception_ptr failure_;  // a thread's first
  std::vector<std::thread> threads_;
};

}  // namespace dex
