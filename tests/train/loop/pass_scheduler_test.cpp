#include "train/loop/pass_scheduler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>
#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace dex;

namespace {

constexpr Tag kRows = Tag::rows, kFinalRows = Tag::final_rows;
constexpr std::int64_t kHidden = 32;  // of the tiny model

using Steps = std::vector<std::int64_t>;

RankLayout layout_of(int world, int rank, int pipeline) {
  return rank_layout(DepthSet({1, 2}, 4), world, rank, pipeline);
}

// The batches of a run by step. A micro-batch is one sample; the n-th of the run has n + 1 tokens.
class Run {
 public:
  explicit Run(std::vector<int> micro_batches, std::int64_t broken_step = -1)
      : micro_batches_(std::move(micro_batches)), broken_step_(broken_step) {}

  Batch read(std::int64_t step) {
    const std::lock_guard guard(mutex_);
    steps_read_.push_back(step);
    require(step < steps(), ExitCode::bug, "step {} of {} steps", step, steps());
    require(step != broken_step_, ExitCode::io, "step {} cannot be read", step);
    Batch batch;
    for (std::int64_t n = passes_before(step); n < passes_before(step + 1); ++n)
      batch.micro_batches.push_back({{.tokens = std::vector<Token>(n + 2, Token(n)),
                                      .supervised = std::vector<std::uint8_t>(n + 2, 1)}});
    return batch;
  }
  std::int64_t passes_before(std::int64_t step) const {
    return std::accumulate(micro_batches_.begin(), micro_batches_.begin() + step, std::int64_t{0});
  }
  std::int64_t steps() const { return std::int64_t(micro_batches_.size()); }
  Steps steps_read() {
    const std::lock_guard guard(mutex_);
    return steps_read_;
  }

 private:
  std::vector<int> micro_batches_;
  std::int64_t broken_step_;
  std::mutex mutex_;
  Steps steps_read_;
};

// A position of the one replica; the test says by hand what the other positions would.
class Position {
 public:
  Position(int pipeline, int position, Run& run)
      : wires_(local_transports(pipeline)),
        ranks_(layout_of(pipeline, position, pipeline), wires_[position].get()),
        model_(Model::load(test::TinyModel{}.write(dir_ / "m"), DepthSet({1, 2}, 4), Dtype::f32,
                           WeightLayout::rows, ranks_.layout().stages())),
        source_(model_, ranks_),
        run_(run) {}

  // Whose steps have so many micro-batches as a rule.
  PassScheduler scheduler(int micro_batches) {
    return {source_, [this](std::int64_t step) { return run_.read(step); }, micro_batches, 1};
  }

  // The rows and final rows of the passes [first, last), which say the pass's number.
  void arrive(std::int64_t first, std::int64_t last) {
    const RankLayout& layout = ranks_.layout();
    for (std::int64_t pass = first; pass < last; ++pass) {
      if (!ranks_.first()) send(kRows, pass, layout.rank - 1);
      if (!ranks_.last()) send(kFinalRows, pass, layout.pipeline - 1);
    }
  }
  bool is_pass(const HiddenRows& rows, std::int64_t pass) const {
    return rows.tokens == pass + 1 && (ranks_.last() || rows.final_RD.equal(rows_of(pass)));
  }

  // Passes begun so far: each sends one message to the neighbour.
  std::int64_t begun() {
    const int own = ranks_.layout().rank, neighbour = ranks_.last() ? own - 1 : own + 1;
    wires_[own]->send({}, neighbour);
    while (!wires_[neighbour]->receive(own).empty()) ++begun_;
    return begun_;
  }

 private:
  static at::Tensor rows_of(std::int64_t pass) {
    return at::full({pass + 1, kHidden}, double(pass));
  }
  void send(Tag kind, std::int64_t pass, int from) {
    const RankLayout& own = ranks_.layout();
    RankMessages(layout_of(own.world, from, own.pipeline), wires_[from].get())
        .send(kind, rows_of(pass), own.rank);
  }

  test::TempDir dir_;
  std::vector<std::unique_ptr<Transport>> wires_;
  RankMessages ranks_;
  Model model_;
  TeacherStates source_;
  Run& run_;
  std::int64_t begun_ = 0;
};

struct Place {
  int pipeline, position;
  std::int64_t ahead;  // passes begun when one is finished, as the pipeline's timing needs it
};
const std::vector<Place> kPlaces{{2, 0, 3}, {2, 1, 2}, {3, 0, 4}, {3, 1, 3}, {3, 2, 2}};

std::string text_of(const Place& place) {
  return "position " + std::to_string(place.position) + " of " + std::to_string(place.pipeline);
}

// The steps [first, last) from enter() to leave(), whose passes come out one after the other.
void work_through(PassScheduler& scheduler, const Position& position, const Run& run,
                  std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step < last; ++step) {
    const StepWork& work = scheduler.enter();
    REQUIRE(work.step == step);
    CHECK(work.mine.begin == 0);
    REQUIRE(work.mine.size() == run.passes_before(step + 1) - run.passes_before(step));
    for (std::int64_t n = run.passes_before(step); n < run.passes_before(step + 1); ++n)
      CHECK(position.is_pass(scheduler.next(), n));
    scheduler.begin_ahead();
    scheduler.leave();
  }
}

}  // namespace

TEST_CASE("a position has as many passes begun as its place wants, those of next steps too") {
  for (const Place& place : kPlaces) {
    INFO(text_of(place));
    Run run({2, 2, 2, 2, 2});
    Position position(place.pipeline, place.position, run);
    position.arrive(0, 10);
    PassScheduler scheduler = position.scheduler(2);
    scheduler.start(0, 5);
    for (std::int64_t n = 0; n < 10; ++n) {
      if (n % 2 == 0) scheduler.enter();
      CHECK(position.is_pass(scheduler.next(), n));
      CHECK(position.begun() == std::min<std::int64_t>(10, n + place.ahead));
      if (n % 2 == 0) continue;
      scheduler.begin_ahead();
      CHECK(position.begun() >= std::min<std::int64_t>(10, n + place.ahead));
      CHECK(position.begun() <= n + 1 + place.ahead);
      scheduler.leave();
    }
  }
}

TEST_CASE("no position has more passes begun than that, however the steps' sizes differ") {
  for (const Place& place : kPlaces) {
    INFO(text_of(place));
    Run run({2, 0, 1, 3, 0, 0, 2, 1});
    Position position(place.pipeline, place.position, run);
    position.arrive(0, 9);
    PassScheduler scheduler = position.scheduler(2);
    scheduler.start(0, run.steps());
    std::int64_t finished = 0;
    for (std::int64_t step = 0; step < run.steps(); ++step) {
      scheduler.enter();
      for (; finished < run.passes_before(step + 1); ++finished) {
        CHECK(position.is_pass(scheduler.next(), finished));
        CHECK(position.begun() <= finished + place.ahead);
      }
      scheduler.begin_ahead();
      CHECK(position.begun() <= finished + place.ahead);
      scheduler.leave();
    }
    CHECK(position.begun() == 9);
  }
}

TEST_CASE("passes come out in order, each of its own step") {
  for (const Place& place : kPlaces) {
    INFO(text_of(place));
    Run run({3, 1, 0, 2, 2});
    Position position(place.pipeline, place.position, run);
    position.arrive(0, 8);
    PassScheduler scheduler = position.scheduler(3);
    scheduler.start(0, 5);
    work_through(scheduler, position, run, 0, 5);
  }
}

TEST_CASE("no step is read or begun from the end on, until start() says another end") {
  for (const Place& place : kPlaces) {
    INFO(text_of(place));
    Run run({1, 1, 1, 1, 1, 1});
    Position position(place.pipeline, place.position, run);
    position.arrive(1, 6);
    PassScheduler scheduler = position.scheduler(1);
    scheduler.start(1, 3);
    work_through(scheduler, position, run, 1, 3);
    CHECK(position.begun() == 2);
    CHECK(run.steps_read() == Steps{1, 2});
    scheduler.start(3, 6);
    CHECK(position.begun() == 2);
    work_through(scheduler, position, run, 3, 6);
    CHECK(position.begun() == 5);
    CHECK(run.steps_read() == Steps{1, 2, 3, 4, 5});
  }
}

TEST_CASE("start() may go back to a step that was worked on") {
  for (const Place& place : kPlaces) {
    INFO(text_of(place));
    Run run({2, 1, 2});
    Position position(place.pipeline, place.position, run);
    PassScheduler scheduler = position.scheduler(2);
    for (int i = 0; i < 2; ++i) {
      position.arrive(0, 5);
      scheduler.start(0, 3);
      work_through(scheduler, position, run, 0, 3);
    }
    CHECK(run.steps_read() == Steps{0, 1, 2, 0, 1, 2});
  }
}

TEST_CASE("what the reading of a step throws comes out of its enter(), not of one before it") {
  for (const Place& place : kPlaces)
    for (std::int64_t broken = 0; broken < 5; ++broken) {
      INFO(text_of(place) << ", step " << broken << " cannot be read");
      Run run({1, 1, 1, 1, 1}, broken);
      Position position(place.pipeline, place.position, run);
      position.arrive(0, 5);
      PassScheduler scheduler = position.scheduler(1);
      scheduler.start(0, 5);
      work_through(scheduler, position, run, 0, broken);
      test::check_refused(ExitCode::io, {"step " + std::to_string(broken) + " cannot be read"},
                          [&] { scheduler.enter(); });
      CHECK(position.begun() == broken);  // no pass of a later step in its place
    }
}

TEST_CASE("the replicas share a step's micro-batches, neighbours together, each to one of them") {
  const test::TempDir dir;
  const Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({1, 2}, 4),
                                  Dtype::f32, WeightLayout::rows);
  for (int replicas : {1, 2, 3, 4}) {
    Run run({5, 1, 0, 4, 3});
    Steps next(5);  // micro-batch that no replica has had
    for (int replica = 0; replica < replicas; ++replica) {
      INFO("replica " << replica << " of " << replicas);
      RankMessages ranks(layout_of(replicas, replica, 1));
      const TeacherStates source(model, ranks);
      PassScheduler scheduler(source, [&](std::int64_t step) { return run.read(step); }, 5, 1);
      scheduler.start(0, 5);
      for (std::int64_t step = 0; step < 5; ++step) {
        const StepWork& work = scheduler.enter();
        CHECK(work.mine.begin == next[step]);
        for (; next[step] < work.mine.end; ++next[step])
          CHECK(scheduler.next().tokens == run.passes_before(step) + next[step] + 1);
        scheduler.leave();
      }
    }
    CHECK(next == Steps{5, 1, 0, 4, 3});
  }
}
