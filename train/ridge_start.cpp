#include "train/ridge_start.h"

#include <algorithm>

#include "common/error.h"

namespace dex {
namespace {

constexpr double kRidge = 30, kScale = 3;

at::Tensor rms(const at::Tensor& h_RD, float eps) { return (h_RD.square().mean(-1, /*keepdim=*/true) + eps).sqrt(); }

double median(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// W1 = [I; -I], W2 = [A, -A]
AdapterWeights linear_map(const at::Tensor& a_DD) {
  const std::int64_t hidden = a_DD.size(0);
  const at::Tensor identity = at::eye(hidden), a = a_DD.to(at::kFloat);
  return {.norm = at::ones({hidden}), .up = at::cat({identity, -identity}), .up_bias = at::zeros({2 * hidden}),
          .down = at::cat({a, -a}, 1), .down_bias = at::zeros({hidden}), .alpha = at::ones({})};
}

}  // namespace

RidgeStart::RidgeStart(const ModelConfig& config, int num_depths) : eps_(config.rms_norm_eps) {
  const auto zeros = [&] { return at::zeros({config.hidden_size, config.hidden_size}, at::kDouble); };
  for (int k = 0; k < num_depths; ++k) sums_.push_back({zeros(), zeros(), zeros(), {}});
}

void RidgeStart::add(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD) {
  const at::Tensor last = final_RD.to(at::kDouble), final_unit = last / rms(last, eps_);
  rows_ += final_RD.size(0);
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const at::Tensor h = h_RD[k].to(at::kDouble), size = rms(h, eps_), unit_t = (h / size).t();
    sums_[k].unit_unit_DD.addmm_(unit_t, unit_t.t());
    sums_[k].unit_final_DD.addmm_(unit_t, final_unit);
    sums_[k].unit_h_DD.addmm_(unit_t, h);
    const at::Tensor sizes = size.to(at::kFloat).contiguous();
    sums_[k].rms.insert(sums_[k].rms.end(), sizes.data_ptr<float>(), sizes.data_ptr<float>() + sizes.numel());
  }
}

std::vector<AdapterWeights> RidgeStart::solve() const {
  require(rows_ > 0, ExitCode::usage, "the ridge start needs supervised tokens, the data it was given has none");
  std::vector<AdapterWeights> starts;
  for (const Sums& s : sums_) {
    const at::Tensor left = s.unit_unit_DD + kRidge * at::eye(s.unit_unit_DD.size(0), at::kDouble);
    const at::Tensor right = kScale * median(s.rms) * s.unit_final_DD - s.unit_h_DD;
    starts.push_back(linear_map(at::cholesky_solve(right, at::linalg_cholesky(left)).t()));
  }
  return starts;
}

}  // namespace dex
