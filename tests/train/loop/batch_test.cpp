#include "train/loop/batch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "data/batch_plan.h"
#include "tests/support/tiny_samples.h"
#include "train/loop/sample_order.h"
#include "train/teacher/teacher_states.h"

using namespace dex;

namespace {

struct Fixture {
  std::vector<Sample> samples = test::tiny_samples(37, 97, 6);
  MicroBatchLimits most{.samples = 2, .tokens = 1000};

  TrainingData data() const {
    return {.size = samples.size(), .sample = [this](std::uint64_t i) { return samples.at(i); }};
  }
  // All batches of an epoch.
  std::vector<Batch> epoch(std::int64_t number) const {
    const TrainingData of = data();
    const SampleOrder order(of, /*seed=*/3, /*batch_size=*/8);
    std::vector<Batch> all;
    for (std::int64_t i = 0; i < order.epoch_steps(); ++i)
      all.push_back(make_batch(order.samples(number * order.epoch_steps() + i), most,
                               [](const Sample& s) { return double(pass_tokens(s)); }));
    return all;
  }
};

std::int64_t tokens_of(const std::vector<Sample>& micro_batch) {
  std::int64_t tokens = 0;
  for (const Sample& sample : micro_batch) tokens += pass_tokens(sample);
  return tokens;
}

std::map<std::vector<Token>, int> count_of(const std::vector<Batch>& batches) {
  std::map<std::vector<Token>, int> count;
  for (const Batch& batch : batches)
    for (const auto& micro_batch : batch.micro_batches)
      for (const Sample& sample : micro_batch) ++count[sample.tokens];
  return count;
}

}  // namespace

TEST_CASE("the batches of an epoch hold every sample once, in another order each epoch") {
  const Fixture f;
  std::map<std::vector<Token>, int> wanted;
  for (const Sample& sample : f.samples) ++wanted[sample.tokens];
  CHECK(count_of(f.epoch(0)) == wanted);
  CHECK(count_of(f.epoch(1)) == wanted);
  CHECK(f.epoch(0)[0].micro_batches[0][0].tokens != f.epoch(1)[0].micro_batches[0][0].tokens);
}

TEST_CASE("a batch has the samples that its step drew, whatever their lengths") {
  const Fixture f;
  const auto epoch = f.epoch(2);
  for (std::uint64_t step = 0; step < epoch.size(); ++step) {
    std::vector<std::vector<Token>> wanted, seen;
    for (std::uint64_t index : batch_indices(3, 2, step, 8, f.samples.size()))
      wanted.push_back(f.samples[index].tokens);
    for (const auto& micro_batch : epoch[step].micro_batches)
      for (const Sample& sample : micro_batch) seen.push_back(sample.tokens);
    std::sort(wanted.begin(), wanted.end());
    std::sort(seen.begin(), seen.end());
    CHECK(seen == wanted);
  }
}

TEST_CASE("micro-batches hold no more samples than asked for, and their tokens are near-equal") {
  const Fixture f;
  std::int64_t even = 0, in_order = 0;  // sums of most - least
  const auto epoch = f.epoch(0);
  for (std::uint64_t step = 0; step + 1 < epoch.size(); ++step) {
    std::vector<std::int64_t> tokens;
    for (const auto& micro_batch : epoch[step].micro_batches) {
      CHECK(micro_batch.size() == 2);
      tokens.push_back(tokens_of(micro_batch));
    }
    even += *std::max_element(tokens.begin(), tokens.end()) -
            *std::min_element(tokens.begin(), tokens.end());
    const auto drawn = batch_indices(3, 0, step, 8, f.samples.size());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = pass_tokens(f.samples[drawn[2 * i]]) + pass_tokens(f.samples[drawn[2 * i + 1]]);
    in_order += *std::max_element(tokens.begin(), tokens.end()) -
                *std::min_element(tokens.begin(), tokens.end());
  }
  CHECK(2 * even < in_order);
}

TEST_CASE("the bound of tokens makes more micro-batches, and a longer sample is alone") {
  Fixture f;
  f.most.tokens = 20;
  f.samples[4] = {.tokens = std::vector<Token>(50, 1),
                  .supervised = std::vector<std::uint8_t>(50, 1)};
  std::size_t count = 0;
  for (const Batch& batch : f.epoch(0)) {
    std::int64_t tokens = 0;
    count += batch.micro_batches.size();
    for (const auto& micro_batch : batch.micro_batches) {
      tokens += tokens_of(micro_batch);
      CHECK((tokens_of(micro_batch) <= 20 || micro_batch.size() == 1));
      CHECK(micro_batch.size() <= 2);
    }
    CHECK(batch.tokens == tokens);
    CHECK(batch.flops == double(tokens));
  }
  CHECK(count > 19);  // of two samples each there are 19
  CHECK(count < 37);
}

TEST_CASE("a batch without any loss row has no micro-batch") {
  Fixture f;
  for (Sample& sample : f.samples)
    std::fill(sample.supervised.begin(), sample.supervised.end(), std::uint8_t{0});
  for (const Batch& batch : f.epoch(0)) {
    CHECK(batch.micro_batches.empty());
    CHECK((batch.rows == 0 && batch.tokens == 0 && batch.flops == 0));
  }
}
