// Random samples for tiny models.
#pragma once
#include <random>
#include <vector>

#include "data/sample.h"

namespace dex::test {

// `supervised_share` of the tokens are targets; ids below `vocab`.
inline std::vector<Sample> tiny_samples(int count, int vocab, std::uint64_t seed,
                                        double supervised_share = 0.6) {
  std::mt19937_64 random(seed);
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    Sample sample;
    const int length = 3 + int(random() % 20);
    for (int t = 0; t < length; ++t) {
      sample.tokens.push_back(Token(random() % std::uint64_t(vocab)));
      sample.supervised.push_back(double(random() % 1000) < 1000 * supervised_share);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace dex::test
