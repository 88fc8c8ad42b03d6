#include "train/reports/step_report.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/local_ranks.h"

using namespace dex;

namespace {

const DepthSet kDepths({10, 20}, 30);
constexpr std::int64_t kMicroBatches = 5, kRows = 40;

// Of micro-batch i at exit k, made up.
DistillResult result_of(std::int64_t i, int first_exit, int exits) {
  DistillResult result;
  for (int k = first_exit; k < first_exit + exits; ++k) {
    result.kl.push_back(0.1 + double(i) / 3 + k);
    result.agreements.push_back(i + 2 * k);
  }
  return result;
}

using Change = std::function<void(const RankLayout&, StepReport&)>;

// The reports of all ranks after a step.
std::vector<StepReport> settled(int world, int pipeline, const Change& change = {}) {
  std::vector<StepReport> reports(world);
  const auto errors = test::on_ranks(kDepths, world, pipeline, [&](RankMessages& ranks) {
    const RankLayout& layout = ranks.layout();
    const int p = layout.pipeline_rank();
    StepReport report{.step = 3, .rows = kRows, .micro_batches = kMicroBatches};
    report.own.assign(1 + layout.exits(p), 0);
    for (int k = 0; k < layout.exits(p); ++k) report.own[1 + k] = layout.first_exit(p) + k + 1.0;
    const IndexRange share = share_of(kMicroBatches, layout, layout.replica());
    for (std::int64_t i = share.begin; i < share.end; ++i)
      add_own(report, result_of(i, layout.first_exit(p), layout.exits(p)));
    if (change) change(layout, report);
    send_own(report, ranks);
    settle(report, ranks);
    reports[layout.rank] = report;
  });
  CHECK(errors == std::vector<std::string>(world));
  return reports;
}

}  // namespace

TEST_CASE("a step's report has the same bits for every layout of ranks") {
  const StepReport one = settled(1, 1)[0];
  double loss = 0, agreement = 0;
  for (std::int64_t i = 0; i < kMicroBatches; ++i) {
    loss += result_of(i, 1, 1).kl[0] / kRows;
    agreement += double(result_of(i, 1, 1).agreements[0]) / kRows;
  }
  CHECK(one.loss[1] == Approx(loss));
  CHECK(one.agreement[1] == Approx(agreement));
  CHECK(one.mean_loss == (one.loss[0] + one.loss[1]) / 2);
  CHECK(one.gradient_norm == std::sqrt(3.0));
  CHECK_FALSE(one.skipped);
  CHECK_FALSE(one.stop);
  for (const auto& [world, pipeline] :
       {std::pair{2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 3}, {6, 1}, {6, 2}}) {
    INFO(world << " ranks, " << pipeline << " in a pipeline");
    const auto reports = settled(world, pipeline);
    CHECK(reports[0].loss == one.loss);
    CHECK(reports[0].agreement == one.agreement);
    for (const StepReport& report : reports) {
      CHECK(report.mean_loss == one.mean_loss);
      CHECK(report.gradient_norm == one.gradient_norm);
      CHECK_FALSE(report.skipped);
    }
  }
}

TEST_CASE("what one rank sees to be no number, or too large, is skipped by all") {
  const auto with_loss = [](double kl) {
    return settled(4, 2, [&](const RankLayout& layout, StepReport& report) {
      if (layout.rank == 2) report.own[2] = kl;
    });
  };
  for (const StepReport& r : with_loss(std::nan(""))) CHECK(r.skipped);
  for (const StepReport& r : with_loss(1e37)) CHECK_FALSE(r.skipped);
  const auto with_norm = [](double square) {
    return settled(4, 2, [&](const RankLayout& layout, StepReport& report) {
      if (layout.pipeline_rank() == 1) report.own[1] = square;  // the same on all replicas
    });
  };
  for (const StepReport& r : with_norm(std::nan(""))) CHECK(r.skipped);
  for (const StepReport& r : with_norm(1e37)) CHECK(r.skipped);
  for (const StepReport& r : with_norm(1e35)) CHECK_FALSE(r.skipped);
}

TEST_CASE("one rank that is asked to stop stops all") {
  for (int asked = 0; asked < 4; ++asked)
    for (const StepReport& r : settled(4, 2, [&](const RankLayout& layout, StepReport& report) {
           report.own[0] = layout.rank == asked;
         }))
      CHECK(r.stop);
}
