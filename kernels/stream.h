// What the cuda:: twin of a kernel takes beside its struct, whose pointers are then the device's.
// It queues its work and returns 0, a CUDA error number, or one of ours; it waits for nothing and
// allocates nothing, so a CUDA graph can record it.
#pragma once
#include <cstddef>
#include <string>

struct CUstream_st;  // CUDA's own

namespace dex::cuda {

using Stream = CUstream_st*;  // null: the default stream

// Device memory a call may fill while it runs, aligned to 128 bytes; what it holds before does not
// matter. Calls that can run at the same time need their own.
struct Workspace {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

// Errors of our own are below zero, where CUDA has none.
constexpr int kTooSmall = -1;  // the call's workspace is too small
constexpr int kNoDevice = -2;  // of every call in a build without CUDA

inline std::string error_text(int error) {
  if (error == kTooSmall) return "the workspace is too small";
  if (error == kNoDevice) return "built without CUDA";
  return "CUDA error " + std::to_string(error);
}

}  // namespace dex::cuda
