// Where training computes: the CPU, or a GPU by libtorch's CUDA half. No CUDA header is needed to
// include this.
#pragma once
#include <ATen/ATen.h>

#include <string>

#include "kernels/stream.h"

namespace dex {

int gpu_count();  // that libtorch sees; 0 in a build without CUDA

// `asked`: "cpu", "cuda", or "auto" for a GPU where there is one. A process takes the GPU of its
// `local_rank`, or the only one it sees, and makes it the current one. Error(usage) when there is
// none for it.
at::Device choose_device(const std::string& asked, int local_rank);

// its UUID in hexadecimal digits, the same to all that see it
std::string gpu_identity(at::Device device);

void synchronize(at::Device device);        // waits for all that was queued there
cuda::Stream stream_of(at::Device device);  // the one that libtorch's operators queue their work on

}  // namespace dex
