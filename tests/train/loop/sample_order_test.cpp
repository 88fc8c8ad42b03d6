#include "train/loop/sample_order.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/errors.h"

using namespace dex;

namespace {

using Indices = std::vector<std::uint64_t>;

// Sample i says its index, and i % 4 of its tokens go through the model.
TrainingData numbered(std::uint64_t size) {
  return {.size = size, .sample = [](std::uint64_t i) {
            const std::size_t tokens = i % 4 == 0 ? 2 : i % 4 + 1;
            Sample sample{.tokens = std::vector<Token>(tokens, Token(i)),
                          .supervised = std::vector<std::uint8_t>(tokens, 0)};
            if (i % 4 != 0) sample.supervised.back() = 1;
            return sample;
          }};
}

Indices indices_of(const std::vector<Sample>& samples) {
  Indices indices;
  for (const Sample& sample : samples) indices.push_back(std::uint64_t(sample.tokens[0]));
  return indices;
}

// Of the steps [first, last), one after the other.
Indices indices_of_steps(const SampleOrder& order, std::int64_t first, std::int64_t last) {
  Indices all;
  for (std::int64_t step = first; step < last; ++step)
    for (std::uint64_t index : indices_of(order.samples(step))) all.push_back(index);
  return all;
}

Indices indices_of_epoch(const SampleOrder& order, std::int64_t epoch) {
  return indices_of_steps(order, epoch * order.epoch_steps(), (epoch + 1) * order.epoch_steps());
}

}  // namespace

TEST_CASE("the steps of every epoch have each sample exactly once") {
  for (const auto& [size, batch, steps] :
       std::vector<std::array<int, 3>>{{37, 8, 5}, {32, 8, 4}, {1, 4, 1}, {5, 1, 5}, {3, 3, 1}}) {
    INFO(size << " samples, " << batch << " a step");
    const TrainingData data = numbered(std::uint64_t(size));
    const SampleOrder order(data, 3, batch);
    REQUIRE(order.epoch_steps() == steps);
    Indices every(size);
    std::iota(every.begin(), every.end(), 0);
    for (int epoch : {0, 1, 2, 9}) {
      Indices taken = indices_of_epoch(order, epoch);
      std::sort(taken.begin(), taken.end());
      CHECK(taken == every);
    }
  }
}

TEST_CASE("every step takes a whole batch but the last of an epoch, which takes the rest") {
  const TrainingData data = numbered(37);
  const SampleOrder order(data, 3, 8);
  for (std::int64_t step = 0; step < 15; ++step)
    CHECK(order.samples(step).size() == (step % 5 == 4 ? 5 : 8));
}

TEST_CASE("the order is the one of its seed and epoch that runs begun earlier have") {
  const TrainingData data = numbered(10);
  const SampleOrder order(data, 3, 4);
  CHECK(indices_of_epoch(order, 0) == Indices{6, 1, 8, 7, 4, 0, 9, 5, 2, 3});
  CHECK(indices_of_epoch(order, 1) == Indices{8, 6, 5, 1, 2, 0, 3, 4, 7, 9});
  CHECK(indices_of(order.samples(4)) == Indices{2, 0, 3, 4});  // the second of the second epoch
  CHECK(indices_of_epoch(SampleOrder(data, 4, 4), 0) == Indices{3, 0, 7, 6, 9, 1, 8, 4, 5, 2});
}

TEST_CASE("a step's samples depend on no step asked for before it") {
  const TrainingData data = numbered(37);
  const SampleOrder forward(data, 7, 8), backward(data, 7, 8);
  std::vector<Indices> first, second;
  for (std::int64_t step = 0; step < 15; ++step) first.push_back(indices_of(forward.samples(step)));
  for (std::int64_t step = 15; step-- > 0;)
    second.insert(second.begin(), indices_of(backward.samples(step)));
  CHECK(first == second);
}

TEST_CASE("the batch size cuts an epoch's order, which does not depend on it") {
  const TrainingData data = numbered(37);
  const Indices whole = indices_of_epoch(SampleOrder(data, 7, 37), 2);
  for (int batch : {1, 4, 8, 36, 100})
    CHECK(indices_of_epoch(SampleOrder(data, 7, batch), 2) == whole);
}

TEST_CASE("the first passes end with the sample that brings the tokens wanted") {
  const TrainingData data = numbered(37);
  const SampleOrder order(data, 3, 8);
  const Indices epoch = indices_of_epoch(order, 0);
  const auto tokens_of = [](std::uint64_t index) { return std::int64_t(index % 4); };
  for (std::int64_t wanted = 0; wanted <= 56; ++wanted) {  // 54 are all there are
    std::int64_t tokens = 0;
    Indices needed;
    for (std::size_t i = 0; i < epoch.size() && tokens < wanted; ++i) {
      needed.push_back(epoch[i]);
      tokens += tokens_of(epoch[i]);
    }
    Indices taken;
    for (const auto& pass : order.first_passes(wanted, 3))
      for (std::uint64_t index : indices_of(pass)) taken.push_back(index);
    INFO(wanted << " tokens wanted");
    CHECK(taken == needed);
  }
}

TEST_CASE("the first passes are whole micro-batches but the last, across steps") {
  const TrainingData data = numbered(37);
  const SampleOrder order(data, 3, 8);
  for (int micro_batch : {1, 3, 8, 40}) {
    const auto passes = order.first_passes(1000, micro_batch);
    REQUIRE(passes.size() == std::size_t((37 + micro_batch - 1) / micro_batch));
    for (std::size_t i = 0; i + 1 < passes.size(); ++i)
      CHECK(passes[i].size() == std::size_t(micro_batch));
    CHECK(passes.back().size() == 37 - (passes.size() - 1) * std::size_t(micro_batch));
  }
  CHECK(order.first_passes(0, 3).empty());
}

TEST_CASE("a data set without a sample is refused") {
  const TrainingData none = numbered(0);
  test::check_refused(ExitCode::usage, {"no sample"}, [&] { SampleOrder(none, 0, 4); });
}
