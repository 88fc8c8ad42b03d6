#include "data/batch_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "common/base/error.h"

namespace dex {
namespace {

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A permutation of [0, count) that needs no table: a Feistel network over the next even power of
// two, walked until it falls inside. At most four times the size, so fewer than four walks on
// average.
class Permutation {
 public:
  Permutation(std::uint64_t key, std::uint64_t count)
      : key_(key), count_(count), half_(std::max(1, (int(std::bit_width(count - 1)) + 1) / 2)) {}

  std::uint64_t operator()(std::uint64_t index) const {
    do index = shuffled(index);
    while (index >= count_);
    return index;
  }

 private:
  std::uint64_t shuffled(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = x >> half_, right = x & mask;
    for (std::uint64_t round = 0; round < 8; ++round) {
      left ^= mix(key_ + right * 0x9e3779b97f4a7c15u + mix(round)) & mask;
      std::swap(left, right);
    }
    return left << half_ | right;
  }

  std::uint64_t key_, count_;
  int half_;
};

using Indices = std::vector<std::size_t>;

// `things` fall in cost.
void split_halves(std::span<const double> cost, const Indices& things, std::size_t parts,
                  std::size_t most, std::vector<Indices>& parts_so_far) {
  if (parts == 1) return parts_so_far.push_back(things);
  const std::size_t share[] = {parts - parts / 2, parts / 2};
  Indices half[2];
  double load[] = {0, 0};
  for (std::size_t done = 0; done < things.size(); ++done) {
    const std::size_t left = things.size() - done;
    const auto is_full = [&](int h) { return half[h].size() == share[h] * most; };
    const auto needs_all = [&](int h) { return half[h].size() + left <= share[h]; };
    const double ahead = load[0] * double(share[1]) - load[1] * double(share[0]);
    const bool second = is_full(0) || needs_all(1) || (ahead > 0 && !is_full(1) && !needs_all(0));
    half[second].push_back(things[done]);
    load[second] += cost[things[done]];
  }
  for (int h : {0, 1}) split_halves(cost, half[h], share[h], most, parts_so_far);
}

}  // namespace

std::uint64_t steps_per_epoch(std::uint64_t batch_size, std::uint64_t count) {
  require(batch_size > 0, ExitCode::usage, "batch size 0, wanted at least 1");
  return count / batch_size + (count % batch_size != 0);
}

std::vector<std::uint64_t> batch_indices(std::uint64_t seed, std::uint64_t epoch,
                                         std::uint64_t step, std::uint64_t batch_size,
                                         std::uint64_t count) {
  const std::uint64_t steps = steps_per_epoch(batch_size, count);
  require(step < steps, ExitCode::bug, "step {} of an epoch of {} steps", step, steps);
  const Permutation permutation(mix(mix(seed) + epoch * 0x9e3779b97f4a7c15u + 1), count);
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = step * batch_size; i < std::min(count, (step + 1) * batch_size); ++i)
    indices.push_back(permutation(i));
  return indices;
}

std::vector<Indices> split_evenly(std::span<const double> cost, std::size_t parts,
                                  std::size_t most) {
  require(parts > 0 && parts <= cost.size() && cost.size() <= parts * most, ExitCode::bug,
          "{} things for {} parts of 1 to {}", cost.size(), parts, most);
  Indices things(cost.size());
  std::iota(things.begin(), things.end(), std::size_t{0});
  std::stable_sort(things.begin(), things.end(), [&](auto a, auto b) { return cost[a] > cost[b]; });
  std::vector<Indices> parts_so_far;
  split_halves(cost, things, parts, most, parts_so_far);
  return parts_so_far;
}

}  // namespace dex
