// What device benchmarks share: memory of random values, medians of times, and the bandwidth they
// are compared with.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/stream.h"

namespace dex::bench {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error(message);
}
inline void require_started(int error) {
  if (error != 0)
    throw std::runtime_error(error < 0 ? cuda::error_text(error)
                                       : std::string("CUDA: ") +
                                             cudaGetErrorString(static_cast<cudaError_t>(error)));
}

// ---- Memory

struct Release {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, Release>;
inline Memory allocate(std::size_t bytes) { return Memory(gpu::device_alloc(bytes)); }

template <class T>
Memory on_device(const std::vector<T>& values) {
  Memory memory = allocate(values.size() * sizeof(T));
  gpu::copy_to_device(memory.get(), values.data(), values.size() * sizeof(T));
  return memory;
}

// Uniform in +- size, a function of seed and place.
__device__ inline float noise(std::uint32_t seed, std::uint64_t i, float size) {
  std::uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
  word = (word ^ word >> 27) * 0x94d049bb133111ebu;
  return (float(std::uint32_t(word >> 40)) / 8388608.0f - 1.0f) * size;
}
template <class T>
__global__ void fill_kernel(T* to, std::size_t count, std::uint32_t seed, float size,
                            float middle) {
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += std::size_t(gridDim.x) * blockDim.x) {
    const float value = middle + noise(seed, i, size);
    if constexpr (sizeof(T) == 4)
      to[i] = value;
    else
      to[i] = gpu::to_bf16(value);
  }
}
template <class T>
Memory random_memory(std::size_t count, float size, float middle = 0) {
  static std::uint32_t seed = 0;
  Memory memory = allocate(count * sizeof(T));
  require_started(gpu::launch(fill_kernel<T>, 1024, 256, 0, nullptr, static_cast<T*>(memory.get()),
                              count, ++seed, size, middle));
  return memory;
}

// ---- Time

struct Graph {
  cudaGraphExec_t graph = nullptr;
  // Records what body queues on a stream.
  explicit Graph(cudaStream_t stream, const std::function<void()>& body) {
    cudaGraph_t recorded;
    gpu::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    gpu::check(cudaStreamEndCapture(stream, &recorded));
    gpu::check(cudaGraphInstantiate(&graph, recorded, 0));
    gpu::check(cudaGraphDestroy(recorded));
  }
  Graph(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(graph); }
};

// Median milliseconds of at least 10 calls and 100 ms.
inline double milliseconds(cudaStream_t stream, const std::function<void()>& call) {
  cudaEvent_t begin, end;
  gpu::check(cudaEventCreate(&begin));
  gpu::check(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  for (double total = 0; times.size() < 10 || (total < 100 && times.size() < 1000);
       total += times.back()) {
    gpu::check(cudaEventRecord(begin, stream));
    call();
    gpu::check(cudaEventRecord(end, stream));
    gpu::check(cudaEventSynchronize(end));
    float ms;
    gpu::check(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms);
  }
  gpu::check(cudaEventDestroy(begin));
  gpu::check(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  return times[times.size() / 2];
}
inline double graph_milliseconds(cudaStream_t stream, const std::function<void()>& body) {
  const Graph graph(stream, body);
  return milliseconds(stream, [&] { gpu::check(cudaGraphLaunch(graph.graph, stream)); });
}

static __global__ void read_kernel(const uint4* from, std::size_t count, unsigned* never) {
  unsigned seen = 0;
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 four[4];
    UNROLL for (int j = 0; j < 4; ++j) four[j] = from[i + std::size_t(j) * stride];
    UNROLL for (int j = 0; j < 4; ++j) seen |= four[j].x ^ four[j].y ^ four[j].z ^ four[j].w;
  }
  if (seen == 0x12345678u) *never = seen;
}

struct Bandwidth {
  double copy, read;  // GB/s; a copied byte counts twice, for it is read and written
};
inline Bandwidth measured_bandwidth(cudaStream_t stream) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const Memory from = allocate(kBytes), to = allocate(kBytes);
  gpu::check(cudaMemset(from.get(), 0, kBytes));
  const double copy = milliseconds(stream, [&] {
    gpu::check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  const double read = milliseconds(stream, [&] {
    require_started(gpu::launch(read_kernel, 132 * 8, 512, 0, stream,
                                static_cast<const uint4*>(from.get()), kBytes / 16,
                                static_cast<unsigned*>(to.get())));
  });
  return {2e-6 * kBytes / copy, 1e-6 * kBytes / read};
}

}  // namespace dex::bench
