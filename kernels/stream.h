// What the cuda:: twin of a kernel takes beside its struct, whose pointers are then the device's.
// It queues its work and returns 0, or a CUDA error number; it waits for nothing and allocates
// nothing, so a CUDA graph can record it.
#pragma once
#include <cstddef>

struct CUstream_st;  // CUDA's own

namespace dex::cuda {

using Stream = CUstream_st*;  // null: the default stream

// Device memory a call may fill while it runs, aligned to 128 bytes; what it holds before does not
// matter. Calls that can run at the same time need their own.
struct Workspace {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

// the error of a call whose workspace is too small (cudaErrorInvalidValue)
constexpr int kTooSmall = 1;
constexpr int kNoDevice = 100;  // of every call in a build without CUDA (cudaErrorNoDevice)

}  // namespace dex::cuda
