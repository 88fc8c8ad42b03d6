#include "train/loop/sample_order.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/support/errors.h"
#include "tests/support/tiny_samples.h"
#include "train/teacher/teacher_states.h"

using namespace dex;

namespace {

struct Fixture {
  std::vector<Sample> samples = test::tiny_samples(21, 97, 6);
  TrainingData data{.size = samples.size(),
                    .sample = [this](std::uint64_t i) { return samples.at(i); }};
};

std::vector<std::vector<Token>> tokens_of(const std::vector<Sample>& samples) {
  std::vector<std::vector<Token>> tokens;
  for (const Sample& sample : samples) tokens.push_back(sample.tokens);
  return tokens;
}

}  // namespace

TEST_CASE("a step's samples depend on seed and step alone, and an epoch has each once") {
  Fixture f;
  const SampleOrder order(f.data, 3, 4), same(f.data, 3, 4), other(f.data, 4, 4);
  REQUIRE(order.epoch_steps() == 6);
  CHECK(tokens_of(order.samples(0)) != tokens_of(other.samples(0)));
  std::map<std::vector<Token>, int> seen;
  for (std::int64_t step = 6; step-- > 0;) {
    CHECK(tokens_of(order.samples(step)) == tokens_of(same.samples(step)));
    for (const Sample& sample : order.samples(step)) ++seen[sample.tokens];
  }
  std::map<std::vector<Token>, int> wanted;
  for (const Sample& sample : f.samples) ++wanted[sample.tokens];
  CHECK(seen == wanted);
  CHECK(order.samples(5).size() == 1);
  CHECK(tokens_of(order.samples(6)) != tokens_of(order.samples(0)));  // the next epoch
}

TEST_CASE("the first passes are those of the first steps, until they have the tokens") {
  Fixture f;
  const SampleOrder order(f.data, 3, 4);
  std::vector<Sample> drawn;
  for (std::int64_t step = 0; step < order.epoch_steps(); ++step)
    for (const Sample& sample : order.samples(step)) drawn.push_back(sample);
  for (const std::int64_t wanted : {1, 30, 100, 1'000'000}) {
    std::vector<Sample> seen;
    for (const auto& pass : order.first_passes(wanted, 3)) {
      CHECK(pass.size() <= 3);
      seen.insert(seen.end(), pass.begin(), pass.end());
    }
    std::int64_t tokens = 0, before_last = 0;
    for (const Sample& sample : seen) before_last = tokens, tokens += pass_tokens(sample);
    CHECK(before_last < wanted);
    CHECK((tokens >= wanted || seen.size() == drawn.size()));
    REQUIRE(seen.size() <= drawn.size());
    CHECK(tokens_of(seen) ==
          tokens_of({drawn.begin(), drawn.begin() + std::ptrdiff_t(seen.size())}));
  }
}

TEST_CASE("a data set without a sample is refused") {
  test::check_refused(ExitCode::usage, {"no sample"},
                      [] { SampleOrder(TrainingData{.size = 0}, 0, 4); });
}
