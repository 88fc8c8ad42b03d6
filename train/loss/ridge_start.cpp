#include "train/loss/ridge_start.h"

#include <algorithm>

#include "common/base/error.h"

namespace dex {
namespace {

constexpr double kRidge = 30, kScale = 3;

at::Tensor row_rms(const at::Tensor& h_RD, float eps) {
  return (h_RD.square().mean(-1, /*keepdim=*/true) + eps).sqrt();
}

double median(std::vector<float> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// W1 = [I; -I], W2 = [A, -A]
AdapterWeights linear_map(const at::Tensor& a_DD) {
  const std::int64_t hidden = a_DD.size(0);
  const at::Tensor identity = at::eye(hidden), a = a_DD.to(at::kFloat);
  return {.norm = at::ones({hidden}),
          .up = at::cat({identity, -identity}),
          .up_bias = at::zeros({2 * hidden}),
          .down = at::cat({a, -a}, 1),
          .down_bias = at::zeros({hidden}),
          .alpha = at::ones({})};
}

}  // namespace

RidgeStart::RidgeStart(const ModelConfig& config, int num_depths)
    : eps_(config.rms_norm_eps),
      sums_(at::zeros({num_depths, 3, config.hidden_size, config.hidden_size}, at::kDouble)),
      rms_(num_depths) {}

void RidgeStart::add(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD) {
  const at::Tensor last = final_RD.to(at::kCPU, at::kDouble),
                   final_unit = last / row_rms(last, eps_);
  for (std::size_t k = 0; k < rms_.size(); ++k) {
    const at::Tensor h = h_RD[k].to(at::kCPU, at::kDouble), size = row_rms(h, eps_),
                     unit_t = (h / size).t();
    const at::Tensor sums = sums_[k];
    sums[0].addmm_(unit_t, unit_t.t());
    sums[1].addmm_(unit_t, final_unit);
    sums[2].addmm_(unit_t, h);
    const at::Tensor sizes = size.to(at::kFloat).contiguous();
    rms_[k].insert(rms_[k].end(), sizes.data_ptr<float>(), sizes.data_ptr<float>() + sizes.numel());
  }
}

std::vector<AdapterWeights> RidgeStart::solve() const {
  std::vector<AdapterWeights> starts;
  for (std::size_t k = 0; k < rms_.size(); ++k) {
    require(!rms_[k].empty(), ExitCode::usage,
            "the ridge start needs supervised tokens, the data it was given has none");
    const at::Tensor sums = sums_[k];
    const at::Tensor left = sums[0] + kRidge * at::eye(sums.size(1), at::kDouble);
    const at::Tensor right = kScale * median(rms_[k]) * sums[1] - sums[2];
    require(at::isfinite(left).all().item<bool>() && at::isfinite(right).all().item<bool>(),
            ExitCode::usage,
            "the ridge start met hidden states that are no numbers; --dtype f32 may help, --init "
            "paper needs none");
    starts.push_back(linear_map(at::cholesky_solve(right, at::linalg_cholesky(left)).t()));
  }
  return starts;
}

}  // namespace dex
