// Threads that the system refuses to libraries. libtorch's transport then ends the process by
// std::terminate, while it still undoes what it had begun, and OpenMP's pool by exit(1): neither
// can be caught. To start such threads beforehand would not do, since each thread that computes has
// a pool of its own.
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

}  // namespace dex
