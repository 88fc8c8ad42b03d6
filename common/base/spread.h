// What a list of repeated measurements comes to.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace dex {

struct Spread {
  // deviation: of the sample, 0 for one value
  double median = 0, least = 0, most = 0, mean = 0, deviation = 0;
};

inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  Spread s{.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
           .least = values.front(),
           .most = values.back()};
  for (const double v : values) s.mean += v / double(n);
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean);
  s.deviation = n > 1 ? std::sqrt(s.deviation / double(n - 1)) : 0;
  return s;
}

}  // namespace dex
