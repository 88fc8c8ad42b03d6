// x as the mma kernels read it: rows of bf16, or 16-bit integers as two planes of bytes with a
// scale per chunk.
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 8;  // elements of bf16 a thread writes at once

__device__ void zero_counters(unsigned* arrived, int count) {
  const int blocks = int(gridDim.x * gridDim.y),
            block = gpu::block_y() * int(gridDim.x) + gpu::block();
  for (int i = block * kThreads + gpu::thread(); i < count; i += blocks * kThreads) arrived[i] = 0;
}

// Block (row, i): kThreads * kEach elements of a prepared row, zeros past the end of a part.
__global__ void narrow_kernel(LinearPlan plan, const float* x, unsigned char* narrow,
                              unsigned* arrived) {
  zero_counters(arrived, plan.counters());
  const int row = gpu::block();
  const int at = (gpu::block_y() * kThreads + gpu::thread()) * kEach;
  if (at * 2 >= plan.pitch()) return;
  const int place = at * 2 / plan.part_pitch, part = plan.part_at[place];
  const int in_part = at - place * plan.part_pitch / 2, size = plan.size(part);
  const float* from = x + std::int64_t(row) * plan.columns() + plan.begin[part] + in_part;
  std::uint32_t pairs[kEach / 2];
  UNROLL for (int i = 0; i < kEach; i += 2) pairs[i / 2] = gpu::bf16_pair(
      in_part + i < size ? from[i] : 0.0f, in_part + i + 1 < size ? from[i + 1] : 0.0f);
  *reinterpret_cast<uint4*>(narrow + std::int64_t(row) * plan.pitch() + at * 2) = {
      pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Block (row, chunk of a part): x = scale * q, rounded as cpu::linear does, with q = 256 * first +
// second + 128, signed bytes both. A chunk that holds infinity or NaN gets NaN for its scale, and
// so makes the whole row NaN.
__global__ void quantize_kernel(LinearPlan plan, const float* x, signed char* bytes, float* scales,
                                unsigned* arrived) {
  zero_counters(arrived, plan.counters());
  const int place = gpu::block_y() / plan.part_chunks, chunk = gpu::block_y() % plan.part_chunks,
            part = plan.part_at[place], row = gpu::block(), thread = gpu::thread();
  const int begin = chunk * kInputChunk, end = min(begin + kInputChunk, plan.size(part));
  const float* from = x + std::int64_t(row) * plan.columns() + plan.begin[part];
  // Magnitudes order as their bits do, infinity and NaN above all.
  std::uint32_t bits = 0;
  for (int k = begin + thread; k < end; k += kThreads)
    bits = max(bits, gpu::bits_as<std::uint32_t>(from[k]) & 0x7fffffffu);
  SHARED(std::uint32_t[kThreads / 32], warps);
  bits = over_block<kThreads>(bits, Max(), warps);
  const bool finite = bits < 0x7f800000u;
  const float largest = gpu::bits_as<float>(bits);
  const float per_unit = !finite || largest < kSmallestChunk ? 0.0f : float(kMaxQuantum) / largest;
  if (thread == 0)
    scales[plan.scale(row, part, chunk)] =
        finite ? largest / float(kMaxQuantum) : gpu::bits_as<float>(0x7fc00000u);

  const int padded = min(begin + kInputChunk, plan.part_pitch);
  signed char* to = bytes + std::int64_t(row) * plan.pitch() + place * plan.part_pitch;
  const std::int64_t plane = std::int64_t(plan.rows) * plan.pitch();
  for (int k = begin + thread; k < padded; k += kThreads) {
    const int q = finite && k < end ? int(rintf(from[k] * per_unit)) : 0;
    to[k] = static_cast<signed char>(q >> 8);
    to[plane + k] = static_cast<signed char>((q & 255) - 128);
  }
}

}  // namespace

int prepare_input(const LinearPlan& plan, const float* x, unsigned char* workspace, Stream stream) {
  if (plan.columns() == 0) return 0;  // of a share of empty parts; its one group counts nothing
  auto* arrived = reinterpret_cast<unsigned*>(workspace + plan.arrived_at);
  const auto rows = unsigned(plan.rows);
  if (plan.planes == 1)
    return gpu::launch(narrow_kernel,
                       dim3(rows, unsigned(ceil_div(plan.pitch() / 2, kThreads * kEach))), kThreads,
                       0, stream, plan, x, workspace, arrived);
  return gpu::launch(quantize_kernel, dim3(rows, unsigned(plan.places * plan.part_chunks)),
                     kThreads, 0, stream, plan, x, reinterpret_cast<signed char*>(workspace),
                     reinterpret_cast<float*>(workspace + plan.scales_at), arrived);
}

}  // namespace dex::cuda
