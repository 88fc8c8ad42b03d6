// Threads that the system refuses to libraries. libtorch's transport then ends the process by
// std::terminate, while it still undoes what it had begun, OpenMP's pool by exit(1): neither can be
// caught. A third pool of libtorch waits for ever for those that were not born. To start all
// beforehand would not do, since each thread that computes has a pool of its own.
#pragma once

namespace dex {

// As long as one lives: a library that ends this process while there is no thread to be had ends it
// with 75 and says why. Any other end is as before.
class RefusedThreads {
 public:
  RefusedThreads();
  ~RefusedThreads();
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;
};

// at::set_num_threads(threads), after a look whether the system gives as many as the pools of one
// thread will want: Error(temporary) where it does not. Should it give fewer a moment later, the
// process ends with 75 after some seconds.
void set_torch_threads(int threads);

}  // namespace dex
