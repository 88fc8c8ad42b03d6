#include "train/ranks/pairwise_sum.h"

#include <catch2/catch.hpp>

using namespace dex;

namespace {

std::vector<at::Tensor> terms(std::int64_t count) {
  at::manual_seed(5);
  std::vector<at::Tensor> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(at::randn({257}) * at::pow(10.0, at::randn({257})));
  return all;
}

// Shares [cuts[i], cuts[i+1]) added up by themselves, then their parts in the order `first` says.
at::Tensor sum_in_shares(const std::vector<at::Tensor>& all, const std::vector<std::int64_t>& cuts,
                         std::size_t first) {
  PairwiseSum whole;
  for (std::size_t turn = 0; turn + 1 < cuts.size(); ++turn) {
    const std::size_t i = (first + turn) % (cuts.size() - 1);
    PairwiseSum share;
    for (std::int64_t n = cuts[i + 1]; n-- > cuts[i];) share.add(n, all[n].clone());
    std::vector<SumNode> nodes;
    for (const auto& [node, tensor] : share.parts()) nodes.push_back(node);
    CHECK((nodes == sum_nodes(cuts[i], cuts[i + 1])));
    for (const auto& [node, tensor] : share.parts()) whole.add(node, tensor.clone());
  }
  return std::move(whole).total();
}

}  // namespace

TEST_CASE("a pairwise sum has the same bits whoever adds what, and is the sum") {
  for (std::int64_t count : {1, 2, 3, 5, 8, 13, 16}) {
    const auto all = terms(count);
    const at::Tensor one = sum_in_shares(all, {0, count}, 0);
    CHECK(at::allclose(one.to(at::kDouble), at::stack(all).to(at::kDouble).sum(0), 1e-4, 1e-4));
    for (std::int64_t cut = 0; cut <= count; ++cut) {
      CHECK(sum_in_shares(all, {0, cut, count}, 0).equal(one));
      CHECK(sum_in_shares(all, {0, cut, count}, 1).equal(one));
      CHECK(sum_in_shares(all, {0, cut / 2, cut, count}, 2).equal(one));
    }
  }
}

TEST_CASE("the sum's order matters, or the test above shows nothing") {
  const auto all = terms(13);
  at::Tensor plain = all[0].clone();
  for (std::size_t i = 1; i < all.size(); ++i) plain.add_(all[i]);
  CHECK_FALSE(plain.equal(sum_in_shares(all, {0, 13}, 0)));
}
