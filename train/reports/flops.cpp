#include "train/reports/flops.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "common/base/stopwatch.h"
#include "common/model/device.h"
#include "common/model/tensors.h"
#include "train/teacher/teacher_states.h"

namespace dex {

double layer_parameters(const ModelConfig& c) {
  const double hidden = c.hidden_size, query = double(c.num_heads) * c.head_dim,
               key = double(c.num_kv_heads) * c.head_dim;
  return hidden * (2 * query + 2 * key + 3 * double(c.intermediate_size));
}

double layers_flops(const ModelConfig& c, int layers, double length) {
  const double pairs = length * (length + 1) / 2, query = double(c.num_heads) * c.head_dim;
  return layers *
         // scores, and values weighted by them
         (2 * length * layer_parameters(c) + 4 * pairs * query);
}

double exits_flops(const ExitSizes& exits, std::int64_t vocab, double rows) {
  if (exits.exits == 0) return 0;
  const double count = exits.exits, hidden = double(exits.hidden),
               head = 2 * hidden * double(vocab),
               adapter = 2 * 2 * hidden * double(exits.width);  // two linears
  // backward is twice forward
  return rows * (head * (1 + 2 * count) + 3 * adapter * count);
}

double step_flops(const ModelConfig& c, const ExitSizes& exits, std::int64_t vocab,
                  std::span<const Sample> samples) {
  double flops = 0, rows = 0;
  for (const Sample& sample : samples) {
    flops += layers_flops(c, c.num_layers, double(pass_tokens(sample)));
    rows += double(loss_rows(sample));
  }
  return flops + exits_flops(exits, vocab, rows);
}

double measure_gemm_peak(Dtype dtype, at::Device device) {
  constexpr int kRepeats = 12;
  const std::int64_t size = peak_gemm_size(device);
  const at::Tensor a = at::randn({size, size}).to(device, scalar_type(dtype)),
                   b = at::randn({size, size}).to(device, scalar_type(dtype));
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    synchronize(device);
    const Stopwatch watch;
    const at::Tensor product = at::mm(a, b.t());
    synchronize(device);
    best = std::max(best, 2 * std::pow(double(size), 3) / watch.seconds());
  }
  return best;
}

}  // namespace dex
