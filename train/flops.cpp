#include "train/flops.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/stopwatch.h"
#include "common/tensors.h"
#include "train/hidden_source.h"

namespace dex {
double step_flops(const ModelConfig& c, int num_exits, std::int64_t width, std::int64_t vocab,
                  std::span<const Sample> samples) {
  const double hidden = static_cast<double>(c.hidden_size),
               query = static_cast<double>(c.num_heads) * c.head_dim,
               key = static_cast<double>(c.num_kv_heads) * c.head_dim, layers = c.num_layers;
  const double weights_of_layer =
      hidden * (2 * query + 2 * key + 3 * static_cast<double>(c.intermediate_size));
  double flops = 0, rows = 0;
  for (const Sample& sample : samples) {
    const double length = static_cast<double>(pass_tokens(sample)), pairs = length * (length + 1) / 2;
    flops +=
        layers * (2 * length * weights_of_layer + 4 * pairs * query);  // scores, and values weighted by them
    rows += static_cast<double>(loss_rows(sample));
  }
  const double exits = num_exits, head = 2 * hidden * static_cast<double>(vocab),
               adapter = 2 * hidden * static_cast<double>(width);
  return flops + rows * (head * (1 + 2 * exits) +
                         3 * 2 * adapter * exits);  // an adapter is two linears, backward is twice forward
}

double measure_gemm_peak(Dtype dtype) {
  constexpr int kSize = 1024, kRepeats = 12;
  const at::Tensor a = at::randn({kSize, kSize}).to(scalar_type(dtype)),
                   b = at::randn({kSize, kSize}).to(scalar_type(dtype));
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const Stopwatch watch;
    const at::Tensor product = at::mm(a, b.t());
    best = std::max(best, 2.0 * kSize * kSize * kSize / watch.seconds());
  }
  return best;
}

}  // namespace dex
