#include "train/reports/step_report.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/rank_threads.h"

using namespace dex;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A step as all ranks together see it.
struct Step {
  std::int64_t rows = 0;
  std::vector<DistillResult> passes;  // of all depths
  std::vector<double> squares;        // of the gradient of each depth
  int stopped = -1;                   // the rank that is asked to stop
};

// Of three exits and a final stage, where there is none.
RankLayout layout_of(int world, int pipeline) {
  return rank_layout(DepthSet({1, 2, 3}, 4), world, 0, pipeline);
}

StepReport part_of(const Step& step, const RankLayout& layout) {
  StepReport report{.rows = step.rows, .micro_batches = std::int64_t(step.passes.size())};
  const int first = layout.first_exit(layout.pipeline_rank());
  const int last = first + layout.exits(layout.pipeline_rank());
  report.own = {layout.rank == step.stopped ? 1.0 : 0.0};
  for (int k = first; k < last; ++k) report.own.push_back(step.squares[k]);
  const IndexRange mine = share_of(report.micro_batches, layout, layout.replica());
  for (std::int64_t pass = mine.begin; pass < mine.end; ++pass) {
    DistillResult seen;
    for (int k = first; k < last; ++k) {
      seen.kl.push_back(step.passes[pass].kl[k]);
      seen.agreements.push_back(step.passes[pass].agreements[k]);
    }
    add_own(report, seen);
  }
  return report;
}

// By rank.
std::vector<StepReport> settled(const Step& step, const RankLayout& layout) {
  std::vector<StepReport> reports(layout.world);
  const auto errors = test::on_every_rank(layout, [&](RankMessages& ranks) {
    StepReport report = part_of(step, ranks.layout());
    send_own(report, ranks);
    settle(report, ranks);
    reports[ranks.layout().rank] = std::move(report);
  });
  for (const auto& error : errors) {
    INFO((error ? error->what() : ""));
    REQUIRE_FALSE(error);
  }
  return reports;
}

const std::vector<RankLayout>& layouts() {
  static const std::vector<RankLayout> all{layout_of(1, 1), layout_of(2, 1), layout_of(2, 2),
                                           layout_of(3, 1), layout_of(3, 3), layout_of(4, 2),
                                           layout_of(4, 4), layout_of(8, 4)};
  return all;
}

std::string text_of(const RankLayout& layout) {
  return std::to_string(layout.world) + " ranks, " + std::to_string(layout.pipeline) + " positions";
}

// 8 rows: means by hand are sums / 8, exact in doubles.
Step small_step() {
  return {.rows = 8,
          .passes = {{.kl = {1, 2, 4}, .agreements = {0, 1, 2}},
                     {.kl = {3, 0.5, 0}, .agreements = {1, 1, 3}},
                     {.kl = {4, 1.5, 2}, .agreements = {0, 2, 2}}},
          .squares = {4, 9, 36}};
}

void check_skipped(const Step& step, bool wanted) {
  for (const RankLayout& layout : layouts())
    for (const StepReport& report : settled(step, layout)) {
      INFO(text_of(layout));
      CHECK(report.skipped == wanted);
    }
}

}  // namespace

TEST_CASE("the loss, agreement and norm of a step are those of all micro-batches and exits") {
  for (const RankLayout& layout : layouts()) {
    INFO(text_of(layout));
    const auto reports = settled(small_step(), layout);
    CHECK(reports[0].loss == std::vector<double>{1, 0.5, 0.75});
    CHECK(reports[0].agreement == std::vector<double>{0.125, 0.5, 0.875});
    for (const StepReport& report : reports) {
      CHECK(report.mean_loss == 0.75);
      CHECK(report.gradient_norm == 7);  // of 4 + 9 + 36, whatever the number of replicas
      CHECK_FALSE(report.skipped);
      CHECK_FALSE(report.stop);
    }
  }
}

TEST_CASE("a step's numbers have the bits that one rank alone gives them") {
  std::mt19937_64 random(1);
  const auto draw = [&] { return double(random() >> 11) * 0x1p-50; };
  for (int passes : {1, 2, 5, 7}) {
    Step step{.rows = 37, .squares = {draw(), draw(), draw()}};
    for (int i = 0; i < passes; ++i)
      step.passes.push_back({.kl = {draw(), draw(), draw()}, .agreements = {i, 2 * i, 37}});
    const StepReport alone = settled(step, layout_of(1, 1))[0];
    for (const RankLayout& layout : layouts()) {
      INFO(text_of(layout) << ", " << passes << " micro-batches");
      const auto reports = settled(step, layout);
      CHECK(reports[0].loss == alone.loss);
      CHECK(reports[0].agreement == alone.agreement);
      for (const StepReport& report : reports) {
        CHECK(report.mean_loss == alone.mean_loss);
        CHECK(report.gradient_norm == alone.gradient_norm);
      }
    }
  }
}

TEST_CASE("one rank that is asked to stop stops all") {
  for (const RankLayout& layout : layouts())
    for (int rank = 0; rank < layout.world; ++rank) {
      INFO(text_of(layout) << ", rank " << rank << " is asked");
      Step step = small_step();
      step.stopped = rank;
      for (const StepReport& report : settled(step, layout)) {
        CHECK(report.stop);
        CHECK_FALSE(report.skipped);
        CHECK(report.mean_loss == 0.75);
        CHECK(report.gradient_norm == 7);
      }
    }
}

TEST_CASE("all ranks skip a step whose loss is no number in one micro-batch of one exit") {
  for (double bad : {kNan, kInfinity, -kInfinity})
    for (std::size_t pass = 0; pass < 3; ++pass)
      for (std::size_t k = 0; k < 3; ++k) {
        Step step = small_step();
        step.passes[pass].kl[k] = bad;
        check_skipped(step, true);
      }
}

TEST_CASE("all ranks skip a step whose gradient is no number or too large at one exit") {
  for (std::size_t k = 0; k < 3; ++k)
    for (double bad : {kNan, kInfinity, 1.01e36}) {
      Step step = small_step();
      step.squares[k] = bad;
      check_skipped(step, true);
    }
}

TEST_CASE("a gradient's norm is too large by the norm of all exits, past 1e18") {
  Step step = small_step();
  step.squares = {0.9e36, 0, 0};
  check_skipped(step, false);
  step.squares = {0.6e36, 0, 0.6e36};
  check_skipped(step, true);
}

TEST_CASE("a step without rows has no loss and no norm, and is not skipped") {
  for (const RankLayout& layout : layouts())
    for (const StepReport& report : settled({.squares = {0, 0, 0}}, layout)) {
      CHECK(report.mean_loss == 0);
      CHECK(report.gradient_norm == 0);
      CHECK_FALSE(report.skipped);
    }
}

TEST_CASE("a step's line has its numbers by depth, its speed, and says when it was skipped") {
  StepReport report{.step = 5,
                    .rows = 8,
                    .tokens = 30,
                    .learning_rate = 0.25,
                    .seconds = 2,
                    .flops = 64,
                    .mean_loss = 0.75,
                    .gradient_norm = 7,
                    .loss = {0.5, 1},
                    .agreement = {0.25, 0.75}};
  nlohmann::json line{{"step", 5},
                      {"learning_rate", 0.25},
                      {"rows", 8},
                      {"tokens", 30},
                      {"loss", 0.75},
                      {"loss_by_depth", {{"10", 0.5}, {"20", 1.0}}},
                      {"agreement", {{"10", 0.25}, {"20", 0.75}}},
                      {"gradient_norm", 7.0},
                      {"seconds", 2.0},
                      {"tokens_per_second", 15.0},
                      {"flops", 64.0}};
  CHECK(to_json(report, {10, 20}) == line);
  report.skipped = true;
  line["skipped"] = 1;
  CHECK(to_json(report, {10, 20}) == line);
  report.seconds = 0;
  CHECK(to_json(report, {10, 20})["tokens_per_second"] == 0);
}
