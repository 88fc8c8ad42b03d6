// The upper tree over the partial sums of shares.
#include "kernels/cuda/linear_plan.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void finish_kernel(FinishLinear p) {
  const std::int64_t each = std::int64_t(p.rows) * p.out,
                     i = std::int64_t(gpu::block()) * kThreads + gpu::thread();
  if (i >= each) return;
  TreeSum tree;
  float sum = 0;
  for (int s = 0; s < p.shares; ++s) sum = tree.push(s, p.partials[s * each + i]);
  LinearFinish{.scales = p.scales, .bias = p.bias, .y = p.y, .out = p.out}(int(i / p.out),
                                                                           int(i % p.out), sum);
}

}  // namespace

int finish_linear(const FinishLinear& p, Stream stream) {
  const std::int64_t each = std::int64_t{p.rows} * p.out;
  if (each <= 0) return 0;
  return gpu::launch(finish_kernel, dim3(unsigned(ceil_div(each, kThreads))), kThreads, 0, stream,
                     p);
}

}  // namespace dex::cuda
