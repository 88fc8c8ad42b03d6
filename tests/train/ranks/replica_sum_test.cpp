#include "train/ranks/replica_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/rank_threads.h"

using namespace dex;

namespace {

constexpr Tag kSums = Tag::gradients;

template <typename T>
using Terms = std::vector<std::vector<T>>;  // by number, then value

// Of many magnitudes, so that another order of adding gives other bits.
template <typename T>
Terms<T> terms(std::int64_t count, std::int64_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Terms<T> all(count, std::vector<T>(size));
  for (auto& term : all)
    for (T& value : term)
      value = T(std::ldexp(double(random() >> 11) * 0x1p-53 - 0.5, int(random() % 24)));
  return all;
}

// The wanted sum as it is defined, of one value: whole trees of pairs, the largest first.
template <typename T>
T tree(const Terms<T>& all, std::size_t value, std::int64_t begin, std::int64_t size) {
  if (size == 1) return all[begin][value];
  return tree(all, value, begin, size / 2) + tree(all, value, begin + size / 2, size / 2);
}
template <typename T>
T wanted_value(const Terms<T>& all, std::size_t value, std::int64_t count) {
  const std::int64_t smallest = count & -count, rest = count - smallest;
  const T last = tree(all, value, rest, smallest);
  return rest == 0 ? last : wanted_value(all, value, rest) + last;
}
template <typename T>
std::vector<T> wanted(const Terms<T>& all) {
  std::vector<T> sum;
  for (std::size_t i = 0; i < all[0].size(); ++i)
    sum.push_back(wanted_value(all, i, std::int64_t(all.size())));
  return sum;
}

// What a rank gets that adds its share of the terms, the last one first.
template <typename T>
std::vector<T> sum_on(RankMessages& ranks, const Terms<T>& all) {
  const auto count = std::int64_t(all.size()), size = std::int64_t(all[0].size());
  const auto type = c10::CppTypeToScalarType<T>::value;
  const IndexRange own = share_of(count, ranks.layout(), ranks.layout().replica());
  PairwiseSum mine;
  for (std::int64_t n = own.end; n-- > own.begin;) mine.add(n, at::tensor(all[n], type));
  const at::Tensor sum = replica_sum(ranks, kSums, std::move(mine), count, size, type);
  require(sum.sizes() == at::IntArrayRef{size} && sum.scalar_type() == type, ExitCode::bug,
          "a sum of another size or type");
  return {sum.template data_ptr<T>(), sum.template data_ptr<T>() + size};
}

// By rank; empty where the rank failed.
template <typename T>
std::vector<std::vector<T>> sums(const RankLayout& layout,
                                 const std::function<Terms<T>(int position)>& terms_of) {
  std::vector<std::vector<T>> by_rank(layout.world);
  test::on_every_rank(layout, [&](RankMessages& ranks) {
    by_rank[ranks.layout().rank] = sum_on(ranks, terms_of(ranks.layout().pipeline_rank()));
  });
  return by_rank;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEMPLATE_TEST_CASE("the replicas' sum has the bits of one tree of pairs on every replica", "",
                   float, double) {
  for (std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16})
    for (std::int64_t size : {1, 3, 101}) {
      const auto all = terms<TestType>(count, size, std::uint64_t(count));
      for (int replicas : {1, 2, 3, 4}) {
        INFO(count << " terms of " << size << " values on " << replicas << " replicas");
        for (const auto& sum : sums<TestType>({.world = replicas}, [&](int) { return all; }))
          CHECK(same_bits(sum, wanted(all)));
      }
    }
}

TEST_CASE("the order of the terms shows in the bits, or the tests here show nothing") {
  const auto all = terms<float>(13, 101, 1);
  std::vector<float> in_order(101, 0.0f);
  for (const auto& term : all)
    for (std::size_t i = 0; i < term.size(); ++i) in_order[i] += term[i];
  CHECK_FALSE(same_bits(in_order, wanted(all)));
}

TEST_CASE("each position of the pipeline has the sum of its own terms") {
  const auto terms_at = [](int position) { return terms<float>(5, 10, 100 + position); };
  for (int pipeline : {2, 3}) {
    const RankLayout layout{.world = 2 * pipeline, .pipeline = pipeline};
    const auto by_rank = sums<float>(layout, terms_at);
    for (int replica : {0, 1})
      for (int position = 0; position < pipeline; ++position)
        CHECK(same_bits(by_rank[layout.rank_at(replica, position)], wanted(terms_at(position))));
  }
}

TEST_CASE("sums that follow one another do not mix, though nobody waits between them") {
  std::vector<Terms<float>> all;
  for (int i = 0; i < 20; ++i) all.push_back(terms<float>(1 + i % 6, 5, std::uint64_t(i)));
  std::vector<std::vector<std::vector<float>>> by_rank(3);
  test::on_every_rank({.world = 3}, [&](RankMessages& ranks) {
    for (const auto& of_step : all) by_rank[ranks.layout().rank].push_back(sum_on(ranks, of_step));
  });
  for (const auto& of_steps : by_rank) {
    REQUIRE(of_steps.size() == all.size());
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(same_bits(of_steps[i], wanted(all[i])));
  }
}
