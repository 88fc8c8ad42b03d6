#include "train/loop/pass_scheduler.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "tests/support/errors.h"
#include "tests/support/local_ranks.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace dex;

namespace {

constexpr std::int64_t kMicroBatches = 3;  // of every step

// Micro-batch i of a step is one sample, whose length tells which it is.
std::int64_t length_of(std::int64_t step, std::int64_t i) { return 2 + kMicroBatches * step + i; }

Batch batch_of(std::int64_t step) {
  Batch batch;
  for (std::int64_t i = 0; i < kMicroBatches; ++i) {
    const auto length = std::size_t(length_of(step, i)) + 1;
    batch.micro_batches.push_back({Sample{.tokens = std::vector<Token>(length, 5),
                                          .supervised = std::vector<std::uint8_t>(length, 1)}});
  }
  return batch;
}

struct Fixture {
  test::TempDir dir;
  DepthSet depths{{1, 3}, 4};
  std::filesystem::path path = test::TinyModel{}.write(dir / "m");

  Model load(StageShare share) const {
    return Model::load(path, depths, Dtype::f32, WeightLayout::rows, share);
  }
};

// Makes the steps [first, end) and returns what went through the model.
std::vector<std::int64_t> lengths_of_steps(PassScheduler& scheduler, std::int64_t first,
                                           std::int64_t end) {
  std::vector<std::int64_t> lengths;
  scheduler.start(first, end);
  for (std::int64_t step = first; step < end; ++step) {
    const StepWork& work = scheduler.enter();
    require(work.step == step, ExitCode::bug, "step {}, wanted {}", work.step, step);
    for (std::int64_t i = work.mine.begin; i < work.mine.end; ++i)
      lengths.push_back(scheduler.next().tokens);
    scheduler.begin_ahead();
    scheduler.leave();
  }
  return lengths;
}

}  // namespace

TEST_CASE("passes come in the order of the steps, for one stretch of steps after the other") {
  const Fixture f;
  const Model model = f.load({0, 3});
  const TeacherStates source(model);
  PassScheduler scheduler(source, batch_of, /*batch_size=*/3, /*micro_batch=*/1);
  std::vector<std::int64_t> wanted;
  for (std::int64_t step = 2; step < 7; ++step)
    for (std::int64_t i = 0; i < kMicroBatches; ++i) wanted.push_back(length_of(step, i));
  auto seen = lengths_of_steps(scheduler, 2, 4);
  const auto more = lengths_of_steps(scheduler, 4, 7);
  seen.insert(seen.end(), more.begin(), more.end());
  CHECK(seen == wanted);
}

TEST_CASE("each replica makes its share, all ranks of a replica the same, and none past the end") {
  const Fixture f;
  std::vector<std::vector<std::int64_t>> seen(4);
  std::atomic<std::int64_t> furthest = 0;
  const auto errors = test::on_ranks(f.depths, 4, 2, [&](RankMessages& ranks) {
    at::set_num_threads(1);
    const Model model = f.load(ranks.layout().stages());
    const TeacherStates source(model, ranks);
    PassScheduler scheduler(
        source,
        [&](std::int64_t step) {
          for (auto known = furthest.load(); step > known;)
            if (furthest.compare_exchange_weak(known, step)) break;
          return batch_of(step);
        },
        3, 1);
    seen[ranks.layout().rank] = lengths_of_steps(scheduler, 0, 4);
  });
  CHECK(errors == std::vector<std::string>(4));
  std::vector<std::int64_t> first, second;  // replicas
  for (std::int64_t step = 0; step < 4; ++step) {
    first.insert(first.end(), {length_of(step, 0), length_of(step, 1)});
    second.push_back(length_of(step, 2));
  }
  CHECK(seen == std::vector<std::vector<std::int64_t>>{first, first, second, second});
  CHECK(furthest == 3);
}

TEST_CASE("what goes wrong in reading a step comes out where the step is entered") {
  const Fixture f;
  const Model model = f.load({0, 3});
  const TeacherStates source(model);
  PassScheduler scheduler(
      source,
      [](std::int64_t step) {
        require(step != 2, ExitCode::io, "step {} cannot be read", step);
        return batch_of(step);
      },
      3, 1);
  CHECK(lengths_of_steps(scheduler, 0, 2).size() == 6);
  test::check_refused(ExitCode::io, {"step 2 cannot be read"}, [&] {
    scheduler.start(2, 3);
    scheduler.enter();
  });
}
