// The distillation loss of a row and its gradient: a block per row, which reads both rows of logits
// twice, once for the softmaxes (largest and sum in one pass) and once for the result. At 128 k
// tokens of bf16 that is 1 MB read twice and 0.26 MB written a row: 0.75 us of an H100's bandwidth.
#include "kernels/distill.h"

#include "kernels/cuda/cache_type.h"
#include "kernels/cuda/gpu_math.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

// A softmax in the making; NaN shows in the total alone.
struct Seen {
  float largest = kLowest, total = 0;
  RankKey best = 0;
};

__device__ void see(Seen& seen, float logit, int token, float inverse_tau) {
  if (logit > seen.largest) {
    seen.total = seen.largest == kLowest
                     ? seen.total
                     : seen.total * gpu::exp_of((seen.largest - logit) * inverse_tau);
    seen.largest = logit;
    seen.best = rank_key(logit, token);
  }
  if (seen.best == 0) seen.best = rank_key(logit, token);
  seen.total += logit == kLowest ? 0.0f : gpu::exp_of((logit - seen.largest) * inverse_tau);
}

struct Softmax {
  float largest, log_sum, total;
  int best;
};

// All threads of the block call it.
__device__ Softmax combined(const Seen& seen, float inverse_tau, float (&floats)[kWarps],
                            RankKey (&keys)[kWarps]) {
  const RankKey best = over_block<kThreads>(seen.best, Max(), keys);
  const float largest = logit_of(best);
  const float scaled = seen.largest == kLowest
                           ? seen.total
                           : seen.total * gpu::exp_of((seen.largest - largest) * inverse_tau);
  const float total = over_block<kThreads>(scaled, Add(), floats);
  return {largest, gpu::log_of(total), total, token_of(best)};
}

template <class T>
__global__ void distill_kernel(DistillRows p) {
  SHARED(float[3][kWarps], floats);
  SHARED(RankKey[2][kWarps], keys);
  const std::int64_t start = std::int64_t{gpu::block()} * p.vocab;
  const T *teacher = static_cast<const T*>(p.teacher) + start,
          *student = static_cast<const T*>(p.student) + start;
  T* difference = static_cast<T*>(p.difference) + start;

  Seen teacher_seen, student_seen;
  for (int i = gpu::thread(); i < p.vocab; i += kThreads) {
    see(teacher_seen, loaded(teacher[i]), i, p.inverse_tau);
    see(student_seen, loaded(student[i]), i, p.inverse_tau);
  }
  const Softmax t = combined(teacher_seen, p.inverse_tau, floats[0], keys[0]);
  const Softmax s = combined(student_seen, p.inverse_tau, floats[1], keys[1]);

  float kl = 0;
  for (int i = gpu::thread(); i < p.vocab; i += kThreads) {
    const float log_p = (loaded(teacher[i]) - t.largest) * p.inverse_tau - t.log_sum;
    const float log_q = (loaded(student[i]) - s.largest) * p.inverse_tau - s.log_sum;
    const float probability = gpu::exp_of(log_p);
    // where the teacher gives nothing, nothing is lost
    if (probability != 0) kl += probability * (log_p - log_q);
    difference[i] = stored<T>(gpu::exp_of(log_q) - probability);
  }
  kl = over_block<kThreads>(kl, Add(), floats[2]);
  if (gpu::thread() != 0) return;
  p.kl[gpu::block()] = kl + 0.0f * (t.total + s.total);  // NaN in either row's logits
  p.agrees[gpu::block()] = t.best == s.best;
}

}  // namespace

int distill_rows(const DistillRows& p, Stream stream) {
  if (p.rows <= 0) return 0;
  const auto kernel = p.dtype == Dtype::f32 ? distill_kernel<float> : distill_kernel<gpu::bf16>;
  return gpu::launch(kernel, dim3(unsigned(p.rows)), kThreads, 0, stream, p);
}

}  // namespace dex::cuda
