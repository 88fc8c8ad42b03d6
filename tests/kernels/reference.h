// What the tests of kernels share on every device: random rows, and slow answers in float64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace dex::test {

inline std::vector<float> random_floats(std::size_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}

template <class T>
std::vector<double> softmax(const std::vector<T>& logits, double tau = 1) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (const T z : logits) p.push_back(std::exp((z - top) / tau)), sum += p.back();
  for (double& value : p) value /= sum;
  return p;
}

// Ids by falling logit, the lower id first among equals.
inline std::vector<std::int32_t> ranked(const std::vector<float>& logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  return order;
}

// The hash of a row of logits (kernels/logit_hash.h), word by word.
inline std::uint64_t logit_hash(const std::vector<float>& logits) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < logits.size(); i += 2) {
    std::uint32_t bits[2] = {};
    std::memcpy(bits, &logits[i], sizeof(float) * std::min<std::size_t>(2, logits.size() - i));
    std::uint64_t w = bits[0] + bits[1] * (std::uint64_t{1} << 32);
    w += 0x9e3779b97f4a7c15u * (i / 2 + 1);
    w = (w ^ (w >> 32)) * 0x85ebca6bu;
    w = (w ^ (w >> 29)) * 0xc2b2ae35u;
    sum += w ^ (w >> 32);
  }
  return sum;
}

// Queries of tree attention, named by the cache rows they see, by position.
struct SeenRows {
  std::vector<std::int32_t> context, context_size, ancestors, ancestors_begin = {0};
  void add(int seen, const std::vector<std::int32_t>& own) {
    context_size.push_back(seen);
    ancestors.insert(ancestors.end(), own.begin(), own.end());
    ancestors_begin.push_back(std::int32_t(ancestors.size()));
  }
  int count() const { return context_size.size(); }
  std::vector<int> seen_by(int row) const {
    std::vector<int> seen(context.begin(), context.begin() + context_size[row]);
    seen.insert(seen.end(), ancestors.begin() + ancestors_begin[row],
                ancestors.begin() + ancestors_begin[row + 1]);
    return seen;
  }
};

struct Sum {
  double value = 0, size = 0;  // size: of what was summed, without signs
};

// One row's attention, (heads, head_dim): keys and values (capacity, kv_heads, head_dim) as they
// mean, q the row's queries.
inline std::vector<Sum> attention(const std::vector<float>& keys, const std::vector<float>& values,
                                  const float* q, int heads, int kv_heads, int head_dim,
                                  const std::vector<int>& seen) {
  std::vector<Sum> out;
  for (int h = 0; h < heads; ++h) {
    const auto at = [&](int cache_row, int d) {
      return (std::size_t(cache_row) * kv_heads + h / (heads / kv_heads)) * head_dim + d;
    };
    std::vector<double> scores;
    for (const int i : seen) {
      double dot = 0;
      for (int d = 0; d < head_dim; ++d) dot += double(q[h * head_dim + d]) * keys[at(i, d)];
      scores.push_back(dot / std::sqrt(double(head_dim)));
    }
    const auto weights = softmax(scores);
    for (int d = 0; d < head_dim; ++d) {
      Sum sum;
      for (std::size_t i = 0; i < seen.size(); ++i) {
        sum.value += weights[i] * values[at(seen[i], d)];
        sum.size += weights[i] * std::abs(values[at(seen[i], d)]);
      }
      out.push_back(sum);
    }
  }
  return out;
}

}  // namespace dex::test
