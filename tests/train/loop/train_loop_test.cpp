#include "train/loop/train_loop.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/model/tensors.h"
#include "data/batch_plan.h"
#include "kernels/numbers_version.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

struct Run {
  test::TempDir dir;
  fs::path path = test::TinyModel{}.write(dir / "m");
  Model model;
  std::vector<Sample> samples = test::tiny_samples(21, 97, 2);
  TrainOptions options{.depths = "1,3",
                       .steps = 9,
                       .batch_size = 4,
                       .micro_batch = 2,
                       .learning_rate = 1e-2,
                       .dtype = "f32",
                       .save_every = 2};

  explicit Run(Dtype dtype = Dtype::f32)
      : model(Model::load(path, DepthSet({1, 3}, 4), dtype, WeightLayout::rows,
                          DigestsOf::what_is_read)) {}

  TrainingData data() const {
    return {.size = samples.size(),
            .sample = [this](std::uint64_t index) { return samples.at(index); },
            .held_out = test::tiny_samples(6, 97, 3),
            .digest = "samples"};
  }
  TrainOutcome train(
      const std::string& out, const std::function<bool()>& stop = [] { return false; }) {
    options.out = dir / out;
    return TrainLoop(options, model, data(), stop).run();
  }
  std::string adapter_bytes(const std::string& out) const {
    return read_file(dir / out / "adapter_config.json") +
           read_file(dir / out / "adapter_model.safetensors");
  }
  // step -> loss of every training line
  std::vector<std::pair<int, double>> losses(const std::string& out) const {
    std::vector<std::pair<int, double>> all;
    std::istringstream lines(read_file(dir / out / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) all.emplace_back(json["step"], json["loss"]);
    }
    return all;
  }
};

}  // namespace

TEST_CASE("a run leaves adapters, a checkpoint, metrics and a summary") {
  Run run;
  const TrainOutcome outcome = run.train("out");
  CHECK(outcome.finished);
  CHECK(outcome.summary["step"] == 9);
  for (const char* exits : {"none", "start", "trained"})
    CHECK(outcome.summary["evaluation"].contains(exits));
  const AdapterFile file = read_adapter_file(run.dir / "out", run.model.fingerprint);
  CHECK(file.config.depths == std::vector<int>{1, 3});
  CHECK(file.config.data_digest == "samples");
  CHECK(newest_checkpoint(run.dir / "out/checkpoints").step == 9);
  CHECK(run.losses("out").size() == 9);
}

TEST_CASE("training lowers the loss on the samples it sees") {
  Run run;
  run.samples.resize(4);
  run.options.steps = 60;
  run.options.init = GENERATE("paper", "ridge");
  run.train("out");
  const auto losses = run.losses("out");
  CHECK(losses.back().second < 0.5 * losses.front().second);
}

TEST_CASE("a run stopped and resumed gives the bytes and the losses of the unbroken run") {
  Run run;
  run.options.init = GENERATE("paper", "ridge");
  run.train("whole");
  run.options.stop_after = 5;
  CHECK_FALSE(run.train("parts").finished);
  CHECK_FALSE(fs::exists(run.dir / "parts/adapter_model.safetensors"));
  run.options.stop_after = 0;
  run.options.resume = true;
  CHECK(run.train("parts").finished);
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(run.losses("parts") == run.losses("whole"));
}

TEST_CASE("a signal in the middle of a step drops that step only") {
  Run run;
  run.train("whole");
  int asked = 0;
  // Held-out text asks 3 times, then each step asks once before it and once per micro-batch.
  const TrainOutcome stopped = run.train("parts", [&] { return ++asked > 3 + 3 * 3 + 2; });
  CHECK_FALSE(stopped.finished);
  CHECK(stopped.summary["step"] == 3);
  CHECK(newest_checkpoint(run.dir / "parts/checkpoints").step == 3);
  run.options.resume = true;
  run.train("parts");
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(run.losses("parts") == run.losses("whole"));
}

TEST_CASE("adapters and checkpoints know every tensor of the model") {
  Run run;
  run.train("out");
  const AdapterFile file = read_adapter_file(run.dir / "out", run.model.fingerprint);
  CHECK(file.config.model_tensors == run.model.known_digests());
  CHECK(file.config.model_tensors.size() == 4 * 9 + 2);
  const auto state = nlohmann::json::parse(
      read_file(newest_checkpoint(run.dir / "out/checkpoints").dir / "state.json"));
  CHECK(state["run"]["model_digest"] == joint_digest(run.model.known_digests()));
}

TEST_CASE("a run whose backbone was altered in a tensor's middle is not gone on with") {
  Run run;
  run.options.stop_after = 3;
  run.train("out");
  run.model.digests->begin()->second = "another";  // as of a file whose ends are the same
  run.options.stop_after = 0;
  run.options.resume = true;
  test::check_refused(ExitCode::usage, {"model_digest was", "now"}, [&] { run.train("out"); });
}

// The checkpoint as another program would have written it.
void change_run(const fs::path& checkpoint, const std::function<void(nlohmann::json&)>& change) {
  auto state = nlohmann::json::parse(read_file(checkpoint / "state.json"));
  change(state["run"]);
  const std::string text = state.dump(2) + "\n";
  auto manifest = nlohmann::json::parse(read_file(checkpoint / "MANIFEST.json"));
  manifest["files"]["state.json"] = {{"size", text.size()}, {"sha256", sha256_of(text)}};
  write_file(checkpoint / "state.json", text);
  write_file(checkpoint / "MANIFEST.json", manifest.dump(2) + "\n");
}

TEST_CASE("a run of another version of the numbers is not gone on with, but can be started anew") {
  Run run;
  run.options.stop_after = 3;
  run.train("out");
  run.options.stop_after = 0;
  run.options.resume = true;
  const fs::path dir = newest_checkpoint(run.dir / "out/checkpoints").dir;
  const std::string now = "version " + std::to_string(kNumbersVersion);
  change_run(dir, [](nlohmann::json& about) { about["numbers_version"] = 77; });
  test::check_refused(ExitCode::usage, {dir.string(), "version 77", now, "--restart", "--out"},
                      [&] { run.train("out"); });
  change_run(dir, [](nlohmann::json& about) { REQUIRE(about.erase("numbers_version") == 1); });
  test::check_refused(ExitCode::usage, {"version 1 of the numbers", now},
                      [&] { run.train("out"); });
  run.options.resume = false;
  run.options.restart = true;
  CHECK(run.train("out").finished);
}

TEST_CASE("a checkpoint of the form before the model's digest goes on, with a warning") {
  Run run;
  run.train("whole");
  run.options.stop_after = 4;
  run.train("parts");
  const fs::path dir = newest_checkpoint(run.dir / "parts/checkpoints").dir;
  change_run(dir, [](nlohmann::json& about) { REQUIRE(about.erase("model_digest") == 1); });
  run.options.stop_after = 0;
  run.options.resume = true;
  const test::CapturedLog log;
  run.train("parts");
  CHECK(log.has(dir.string()));
  CHECK(log.has("dex inspect --rewrite"));
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(read_file(newest_checkpoint(run.dir / "parts/checkpoints").dir / "state.json") ==
        read_file(newest_checkpoint(run.dir / "whole/checkpoints").dir / "state.json"));
}

TEST_CASE("a damaged newest checkpoint is passed over and the result is the same") {
  Run run;
  run.train("whole");
  run.options.stop_after = 6;
  run.train("parts");
  write_file(run.dir / "parts/checkpoints/step-6/moments.safetensors", "torn");
  run.options.stop_after = 0;
  run.options.resume = true;
  run.train("parts");
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(run.losses("parts") == run.losses("whole"));
}

TEST_CASE("a run stopped exactly at the end of an epoch goes on with the next one") {
  Run run;
  run.options.steps = 0;
  run.options.epochs = 3;
  run.options.save_every = 1;
  const auto total = run.train("whole").summary["steps"].get<std::int64_t>();
  const auto epoch = std::int64_t(steps_per_epoch(4, run.samples.size()));
  REQUIRE(total == 3 * epoch);
  const bool by_signal = GENERATE(false, true);
  for (const std::int64_t end : {epoch, 2 * epoch}) {
    const fs::path last = run.dir / fmt::format("parts/checkpoints/step-{}", end);
    run.options.stop_after = by_signal ? 0 : end;
    CHECK_FALSE(run.train("parts", [&] { return by_signal && fs::exists(last); }).finished);
    CHECK(newest_checkpoint(run.dir / "parts/checkpoints").step == end);
    run.options.resume = true;
  }
  run.options.stop_after = 0;
  CHECK(run.train("parts").finished);
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(run.losses("parts") == run.losses("whole"));
}

TEST_CASE(
    "a run whose checkpoints are all damaged stops with the reasons and starts anew if asked") {
  Run run;
  run.train("whole");
  run.options.stop_after = 6;
  run.train("parts");
  const fs::path checkpoints = run.dir / "parts/checkpoints";
  const auto found = checkpoints_in(checkpoints);
  REQUIRE(found.size() >= 2);
  for (const auto& [step, dir] : found) {
    if (step == 6)
      write_file(dir / "moments.safetensors", "torn");
    else
      fs::remove(dir / "MANIFEST.json");
  }
  write_file(run.dir / "parts/adapter_config.json", "of an earlier run");
  run.options.stop_after = 0;

  run.options.resume = true;
  for (int twice = 0; twice < 2; ++twice)
    test::check_refused(
        ExitCode::io,
        {"no checkpoint is whole", "--restart", "step-6/moments.safetensors: has 4 bytes",
         "step-4/MANIFEST.json: missing"},
        [&] { run.train("parts"); });
  CHECK(fs::exists(checkpoints / "step-6/weights.safetensors"));
  run.options.resume = false;
  test::check_refused(ExitCode::usage, {"--resume", "--restart"}, [&] { run.train("parts"); });

  run.options.restart = true;
  CHECK(run.train("parts").finished);
  CHECK(run.adapter_bytes("parts") == run.adapter_bytes("whole"));
  CHECK(run.losses("parts") == run.losses("whole"));
  run.options.stop_after = 3;  // also of a sound run
  CHECK_FALSE(run.train("parts").finished);
  CHECK(newest_checkpoint(checkpoints).step == 3);
  CHECK_FALSE(fs::exists(run.dir / "parts/adapter_model.safetensors"));
  CHECK_FALSE(fs::exists(run.dir / "parts/.checkpoints.doomed"));
}

TEST_CASE("a restart removes nothing where no run is, and begins in an empty directory") {
  Run run;
  run.options.steps = 2;
  run.options.restart = true;
  for (const char* name :
       {"checkpoints", "best", "tensorboard", "notes.txt", "model.safetensors"}) {
    CAPTURE(name);
    const fs::path out = run.dir / ("of others, with " + std::string(name)), theirs = out / name;
    fs::create_directories(theirs);
    write_file(theirs / "theirs", "not a run's");
    test::check_refused(ExitCode::usage, {out.string(), "no training run", "--restart"},
                        [&] { run.train(out.filename().string()); });
    CHECK(read_file(theirs / "theirs") == "not a run's");
    CHECK(std::distance(fs::directory_iterator(out), {}) == 1);
  }
  fs::create_directory(run.dir / "empty");
  CHECK(run.train("empty").finished);
  CHECK(run.train("absent").finished);
  CHECK(run.adapter_bytes("empty") == run.adapter_bytes("absent"));
  write_file(run.dir / "empty/notes.txt", "mine");  // beside a run: stays
  CHECK(run.train("empty").finished);
  CHECK(read_file(run.dir / "empty/notes.txt") == "mine");
}

TEST_CASE("a step without any target makes no optimizer step and leaves no NaN") {
  Run run;
  for (Sample& sample : run.samples)
    std::fill(sample.supervised.begin(), sample.supervised.end(), std::uint8_t{0});
  run.options.steps = 2;
  const TrainOutcome outcome = run.train("out");
  CHECK(outcome.finished);
  CHECK(outcome.summary["loss"] == 0.0);
  const AdapterFile file = read_adapter_file(run.dir / "out");
  const auto start = AdapterWeights::paper_start(run.model.config, 64, 0, 1);
  CHECK(AdapterWeights::read(file.weights, run.model.config, 1).up.equal(start.up));
  const auto state =
      nlohmann::json::parse(read_file(run.dir / "out/checkpoints/step-2/state.json"));
  CHECK(state["optimizer_steps"] == 0);
}

TEST_CASE("with bf16 compute every trainable tensor moves and is kept in float32") {
  Run run(Dtype::bf16);
  run.options.dtype = "bf16";
  run.options.learning_rate = 1e-4;
  run.train("out");
  const AdapterFile file = read_adapter_file(run.dir / "out");
  for (int depth : {1, 3}) {
    const auto start = AdapterWeights::paper_start(run.model.config, 64, 0, depth).named();
    const auto trained = AdapterWeights::read(file.weights, run.model.config, depth).named();
    for (std::size_t i = 0; i < start.size(); ++i) {
      INFO(depth << " " << start[i].first);
      CHECK_FALSE(trained[i].second.equal(start[i].second));
    }
  }
}

TEST_CASE("a loss that is no number ends the run and is never saved") {
  Run run;
  run.options.steps = 4;
  run.options.learning_rate = 999;  // the weights grow until the induced state overflows
  run.options.warmup = 0;
  for (Sample& sample : run.samples) sample.tokens[0] = 1;
  Run broken;
  broken.options = run.options;
  const_cast<at::Tensor&>(broken.model.head->norm_weight())
      .fill_(std::numeric_limits<float>::infinity());
  broken.options.eval_samples = 0;
  broken.options.out = broken.dir / "out";
  TrainingData data = broken.data();
  data.held_out.clear();
  test::check_refused(ExitCode::usage, {"step 1", "nan"}, [&] {
    TrainLoop(broken.options, broken.model, data, [] { return false; }).run();
  });
  CHECK(newest_checkpoint(broken.dir / "out/checkpoints").step == 0);
  CHECK_FALSE(fs::exists(broken.dir / "out/adapter_model.safetensors"));
}

TEST_CASE(
    "a step that is no number can be skipped: it changes nothing, is counted, and the run goes "
    "on") {
  Run run;
  at::Tensor& norm = const_cast<at::Tensor&>(run.model.head->norm_weight());
  const at::Tensor sound = norm.clone();
  TrainingData data = run.data();
  data.held_out.clear();
  int asked = 0, broken_to = 3;
  const auto break_third_step = [&] {  // asked once before a step and once per micro-batch
    const int step = asked++ / 3;
    norm.copy_(step >= 2 && step < broken_to ? sound * std::numeric_limits<float>::infinity()
                                             : sound);
    return false;
  };
  run.options.out = run.dir / "out";
  run.options.steps = 5;
  run.options.on_nan = "skip";
  run.options.nan_limit = 2;
  const auto train = [&] {
    return TrainLoop(run.options, run.model, data, break_third_step).run();
  };

  SECTION("once") {
    const TrainOutcome outcome = train();
    CHECK(outcome.finished);
    CHECK(outcome.summary["skipped"] == 1);
    const auto state =
        nlohmann::json::parse(read_file(run.dir / "out/checkpoints/step-5/state.json"));
    CHECK(state["optimizer_steps"] == 4);
    CHECK(state["skipped"] == 1);
    CHECK(state["skipped_in_row"] == 0);
    CHECK(read_file(run.dir / "out/metrics.jsonl").find("\"loss\":null") != std::string::npos);
    const AdapterFile file = read_adapter_file(run.dir / "out");
    for (const auto& [name, tensor] : file.weights.tensors())
      CHECK(at::isfinite(view_of(tensor)).all().item<bool>());
  }
  SECTION("too often in a row, and the steps before are saved") {
    broken_to = 4;
    test::check_refused(ExitCode::usage, {"step 4", "after 1 skipped in a row"}, train);
    CHECK(newest_checkpoint(run.dir / "out/checkpoints").step == 3);
    const auto state =
        nlohmann::json::parse(read_file(run.dir / "out/checkpoints/step-3/state.json"));
    CHECK(state["optimizer_steps"] == 2);
    CHECK(state["skipped_in_row"] == 1);
  }
}

TEST_CASE(
    "the best adapters so far are kept with their checkpoint, and interruptions do not change "
    "which") {
  Run run;
  run.options.eval_every = 1;
  run.options.keep = 1;
  run.options.init = "ridge";
  run.options.learning_rate = 0.5;  // gets worse at once: the start stays the best
  const auto best = [&](const std::string& out) {
    return read_file(run.dir / out / "best/best.json") +
           read_file(run.dir / out / "best/adapter_model.safetensors");
  };
  const TrainOutcome whole = run.train("whole");
  const auto step = whole.summary["best_step"].get<std::int64_t>();
  double least = 9;
  std::istringstream lines(read_file(run.dir / "whole/metrics.jsonl"));
  std::int64_t wanted = -1;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    for (const char* name : {"start", "trained"})
      if (json.contains("evaluation") && json["evaluation"].contains(name) &&
          json["evaluation"][name]["decs_hops"] < least)
        least = json["evaluation"][name]["decs_hops"], wanted = json["step"];
  }
  CHECK(step == wanted);
  CHECK(step < 9);  // or the newest is the best and nothing is tested
  CHECK(fs::exists(run.dir / fmt::format("whole/checkpoints/step-{}", step)));
  CHECK(fs::exists(run.dir / "whole/checkpoints/step-9"));
  CHECK(checkpoints_in(run.dir / "whole/checkpoints").size() == 2);

  run.options.stop_after = 5;
  run.train("parts");
  run.options.stop_after = 0;
  run.options.resume = true;
  run.train("parts");
  CHECK(best("parts") == best("whole"));
  CHECK(checkpoints_in(run.dir / "parts/checkpoints").size() == 2);
}

TEST_CASE("a run that is first evaluated in its middle does not call its weights there the start") {
  Run run;
  TrainingData blind = run.data();
  blind.held_out.clear();
  run.options.out = run.dir / "out";
  run.options.stop_after = 5;
  CHECK_FALSE(TrainLoop(run.options, run.model, blind, [] { return false; }).run().finished);
  run.options.stop_after = 0;
  run.options.resume = true;
  const auto evaluation = run.train("out").summary["evaluation"];
  CHECK(evaluation.contains("none"));
  CHECK_FALSE(evaluation.contains("start"));
  CHECK(evaluation.contains("trained"));
}

TEST_CASE("one other thread reads the samples, a few steps ahead, and stops with the run") {
  Run run;
  run.options.steps = 30;
  TrainingData data = run.data();
  data.held_out.clear();
  std::set<std::thread::id> readers;
  std::atomic<int> read = 0;
  data.sample = [&](std::uint64_t index) {
    readers.insert(std::this_thread::get_id());
    ++read;
    return run.samples.at(index);
  };
  int asked = 0, most = 0;  // most: samples read beyond the step that is worked on
  const auto stop = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the reader could be far ahead
    const int step = asked++ / 3;
    most = std::max(most, read - 4 * (step + 1));
    return step == 10;
  };
  run.options.out = run.dir / "out";
  CHECK_FALSE(TrainLoop(run.options, run.model, data, stop).run().finished);
  CHECK(readers.size() == 1);
  CHECK(readers.count(std::this_thread::get_id()) == 0);
  CHECK(most >= 4);
  CHECK(most <= 3 * 4);
  CHECK(read <= 13 * 4);
}

TEST_CASE(
    "an error of the reading thread ends the run in the step that needs the sample, as itself") {
  Run run;
  TrainingData data = run.data();
  data.held_out.clear();
  const std::uint64_t bad = batch_indices(0, 0, 3, 4, run.samples.size())[1];
  data.sample = [&](std::uint64_t index) {
    require(index != bad, ExitCode::io, "train-00001.h5: cannot be read");
    return run.samples.at(index);
  };
  run.options.out = run.dir / "out";
  test::check_refused(ExitCode::io, {"train-00001.h5: cannot be read"},
                      [&] { TrainLoop(run.options, run.model, data, [] { return false; }).run(); });
  CHECK(run.losses("out").size() == 3);
  CHECK(newest_checkpoint(run.dir / "out/checkpoints").step == 2);
  run.options.resume = true;
  run.train("out");
  run.options.resume = false;
  run.train("whole");
  CHECK(run.adapter_bytes("out") == run.adapter_bytes("whole"));
}

TEST_CASE("an earlier run is neither overwritten nor continued with other options") {
  Run run;
  run.options.stop_after = 3;
  run.train("out");
  test::check_refused(ExitCode::usage, {"--resume"}, [&] { run.train("out"); });
  run.options.resume = true;
  run.options.learning_rate = 2e-2;
  run.options.seed = 5;
  test::check_refused(ExitCode::usage, {"learning_rate was 0.01, now 0.02", "seed was 0, now 5"},
                      [&] { run.train("out"); });
}

TEST_CASE("the order of samples depends on the seed, and every epoch takes each once") {
  Run a, b;
  b.options.seed = 1;
  a.options.steps = b.options.steps = 3;
  a.train("out");
  b.train("out");
  CHECK(a.losses("out")[0].second != b.losses("out")[0].second);
}

TEST_CASE("options out of range are refused by name") {
  const auto refused = [](const char* name, auto change) {
    TrainOptions options;
    change(options);
    test::check_refused(ExitCode::usage, {name}, [&] { check(options); });
  };
  refused("--init", [](auto& o) { o.init = "zero"; });
  refused("--dtype", [](auto& o) { o.dtype = "fp16"; });
  refused("--lr", [](auto& o) { o.learning_rate = std::numeric_limits<double>::quiet_NaN(); });
  refused("--tau", [](auto& o) { o.tau = 0; });
  refused("--warmup", [](auto& o) { o.warmup = 1.5; });
  refused("--micro-tokens", [](auto& o) { o.micro_tokens = 0; });
  refused("--batch-size", [](auto& o) { o.batch_size = 0; });
  refused("--on-nan", [](auto& o) { o.on_nan = "ignore"; });
  refused("--nan-limit", [](auto& o) { o.nan_limit = 0; });
  refused("--restart", [](auto& o) { o.resume = o.restart = true; });
  refused("--width", [](auto& o) { o.init = "ridge", o.width = 64; });
  CHECK_NOTHROW(check(TrainOptions{}));
}
