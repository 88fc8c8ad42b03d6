#include "train/teacher/state_cache.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoints/checkpoint.h"
#include "common/base/file.h"
#include "kernels/numbers_version.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"
#include "train/teacher/teacher_states.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

const std::vector<int> kDepths{1, 3};

struct Fixture {
  test::TempDir dir;
  fs::path path = test::TinyModel{}.write(dir / "m");
  Model model = load(Dtype::f32, kDepths);
  std::vector<Sample> samples = test::tiny_samples(21, 97, 2);
  TrainOptions options{.depths = "1,3",
                       .epochs = 3,
                       .batch_size = 4,
                       .micro_batch = 2,
                       .learning_rate = 1e-2,
                       .dtype = "f32",
                       .save_every = 2};

  Model load(Dtype dtype, std::vector<int> depths) const {
    return Model::load(path, DepthSet(std::move(depths), 4), dtype, WeightLayout::rows,
                       DigestsOf::what_is_read);
  }
  fs::path states() const { return dir / "states"; }
  fs::path part(int number) const {
    return states() / fmt::format("states-{:06}.safetensors", number);
  }

  TrainOutcome train(const std::string& out, const fs::path& cache, const Model& with) {
    options.out = dir / out;
    options.cache_states = cache;
    const TrainingData data{.size = samples.size(),
                            .sample = [this](std::uint64_t i) { return samples.at(i); },
                            .held_out = test::tiny_samples(6, 97, 3),
                            .digest = "samples",
                            .targets = 300};
    return TrainLoop(options, with, data, [] { return false; }).run();
  }
  std::string result(const std::string& out) const {
    const std::string step = "/checkpoints/step-18/";
    return read_file(dir / out / "adapter_config.json") +
           read_file(dir / out / "adapter_model.safetensors") +
           read_file(dir / (out + step + "moments.safetensors")) +
           read_file(dir / (out + step + "state.json"));
  }
};

// The weights no longer do what the fingerprint that was taken at loading says: a pass gives other
// states.
void spoil(Model& model) { at::Tensor(model.stages[0].layers()[0].qkv.plain()).zero_(); }

at::Tensor random_states(std::int64_t rows) { return at::randn({3, rows, 32}); }

}  // namespace

TEST_CASE("training with cached states leaves the bytes of training without, cold and warm") {
  Fixture f;
  f.options.init = GENERATE("paper", "ridge");
  f.train("plain", "", f.model);
  f.train("cold", f.states(), f.model);
  CHECK(f.result("cold") == f.result("plain"));
  Model spoiled = f.load(Dtype::f32, kDepths);
  spoil(spoiled);
  f.train("warm", f.states(), spoiled);  // nothing is left to pass through it
  CHECK(f.result("warm") == f.result("plain"));
  f.train("spoiled", "", spoiled);
  CHECK(f.result("spoiled") != f.result("plain"));  // or the line before shows nothing
}

TEST_CASE(
    "a run interrupted in its first epoch goes on with what the cache has, with or without it") {
  Fixture f;
  f.train("plain", "", f.model);
  f.options.resume = true;
  for (const std::int64_t stop : {3, 8, 0}) {
    f.options.stop_after = stop;
    f.train("parts", stop == 8 ? fs::path() : f.states(), f.model);
    write_file(fs::path(f.part(2).string() + ".tmp-1"), "a killed writer's");
  }
  CHECK(f.result("parts") == f.result("plain"));
}

TEST_CASE(
    "states come back as they were added, also before they are on disk and from another process' "
    "parts") {
  Fixture f;
  const at::Tensor one = random_states(5), two = random_states(1), three = random_states(2);
  {
    StateCache cache(f.states(), f.model, "data");
    CHECK_FALSE(cache.find("one").defined());
    cache.add("one", one);
    CHECK(cache.find("one").equal(one));
    CHECK_FALSE(fs::exists(f.part(0)));
    cache.flush();
    CHECK(fs::exists(f.part(0)));
    CHECK(cache.find("one").equal(one));
    cache.add("two", two);
    cache.flush();
    cache.flush();
    CHECK_FALSE(fs::exists(f.part(2)));
    cache.add("three", three);  // is lost
  }
  write_file(fs::path(f.part(2).string() + ".tmp-1"), "half of three");
  StateCache cache(f.states(), f.model, "data");
  CHECK(cache.find("one").equal(one));
  CHECK(cache.find("two").equal(two));
  CHECK_FALSE(cache.find("three").defined());
  CHECK_FALSE(fs::exists(fs::path(f.part(2).string() + ".tmp-1")));
}

TEST_CASE("a part is written when there is enough for one") {
  Fixture f;
  StateCache cache(f.states(), f.model, "data");
  for (int i = 0; i < 3; ++i)
    cache.add(std::to_string(i), at::zeros({3, (24 << 20) / 3 / 128, 32}));
  CHECK(fs::file_size(f.part(0)) > 70'000'000);
  CHECK(cache.find("1").defined());
}

TEST_CASE("the key of a sample is its ids and marks") {
  const Sample sample{.tokens = {1, 2, 3}, .supervised = {0, 1, 1}};
  CHECK(key_of(sample) == key_of({.tokens = {1, 2, 3}, .supervised = {0, 1, 1}}));
  CHECK(key_of(sample) != key_of({.tokens = {1, 2, 4}, .supervised = {0, 1, 1}}));
  CHECK(key_of(sample) != key_of({.tokens = {1, 2, 3}, .supervised = {0, 0, 1}}));
}

TEST_CASE("a cache of anything else is refused with both values") {
  Fixture f;
  StateCache(f.states(), f.model, "data");
  const auto refused = [&](std::vector<std::string> words, const Model& model,
                           const std::string& data) {
    test::check_refused(ExitCode::usage, words, [&] { StateCache(f.states(), model, data); });
  };
  refused({"states.json", "data_digest is \"data\", wanted \"other\""}, f.model, "other");
  refused({"dtype is \"f32\", wanted \"bf16\""}, f.load(Dtype::bf16, kDepths), "data");
  refused({"depths is \"1,3,4\", wanted \"2,4\""}, f.load(Dtype::f32, {2}), "data");
  f.path = test::TinyModel{.seed = 9}.write(f.dir / "m2");
  const Model other = f.load(Dtype::f32, kDepths);
  refused({"model_fingerprint is \"" + f.model.fingerprint + "\", wanted \"" + other.fingerprint},
          other, "data");
  write_file(f.states() / "states.json", "{\"format\":");
  test::check_refused(ExitCode::io, {"states.json"},
                      [&] { StateCache(f.states(), f.model, "data"); });
}

TEST_CASE("a cache of another version of the numbers is refused with both and the way on") {
  Fixture f;
  StateCache(f.states(), f.model, "data");
  const fs::path file = f.states() / "states.json";
  auto about = nlohmann::json::parse(read_file(file));
  CHECK(about["numbers_version"] == kNumbersVersion);
  const auto refused = [&](const std::string& version) {
    write_file(file, about.dump(2) + "\n");
    test::check_refused(ExitCode::usage,
                        {file.string(), "version " + version + " of the numbers",
                         "version " + std::to_string(kNumbersVersion), "another --cache-states"},
                        [&] { StateCache(f.states(), f.model, "data"); });
  };
  about["numbers_version"] = 77;
  refused("77");
  about.erase("numbers_version");
  refused("1");
}

TEST_CASE("states whose states.json is lost are not taken for another model's") {
  Fixture f;
  {
    StateCache cache(f.states(), f.model, "data");
    cache.add("one", random_states(5));
    cache.flush();
  }
  fs::remove(f.states() / "states.json");
  f.path = test::TinyModel{.seed = 9}.write(f.dir / "m2");
  const Model other = f.load(Dtype::f32, kDepths);
  {
    StateCache cache(f.states(), other, "data");
    test::check_refused(ExitCode::io, {"states-000000.safetensors", "one"},
                        [&] { cache.find("one"); });
  }
  fs::remove(f.states() / "states.json");
  StateCache cache(f.states(), f.model, "data");
  CHECK(cache.find("one").defined());
}

TEST_CASE("a cache that is in use is refused for now") {
  Fixture f;
  {
    const StateCache first(f.states(), f.model, "data");
    test::check_refused(ExitCode::temporary, {f.states().string(), "another run uses it"},
                        [&] { StateCache(f.states(), f.model, "data"); });
  }
  CHECK_NOTHROW(StateCache(f.states(), f.model, "data"));
}

TEST_CASE("an altered or cut part is never used") {
  Fixture f;
  {
    StateCache cache(f.states(), f.model, "data");
    cache.add("one", random_states(5));
    cache.flush();
  }
  std::string bytes = read_file(f.part(0));
  write_file(f.part(0), bytes.substr(0, bytes.size() - 1));
  test::check_refused(ExitCode::io, {"states-000000.safetensors"},
                      [&] { StateCache(f.states(), f.model, "data"); });
  bytes.back() = char(bytes.back() ^ 1);
  write_file(f.part(0), bytes);
  StateCache cache(f.states(), f.model, "data");
  test::check_refused(ExitCode::io, {"states-000000.safetensors", "altered", "wanted"},
                      [&] { cache.find("one"); });
}

TEST_CASE(
    "states that the disk has no room for are refused before they are made, those that are there "
    "need none") {
  Fixture f;
  StateCache cache(f.states(), f.model, "data");
  CHECK_NOTHROW(cache.require_room(1000));
  test::check_refused(ExitCode::io, {"states", "bytes free", "wanted 384000000000000 more"},
                      [&] { cache.require_room(1'000'000'000'000); });
}

TEST_CASE("a cache that cannot be written costs no step that is to be saved") {
  Fixture f;
  f.options.out = f.dir / "out";
  f.options.cache_states = f.states();
  const TrainingData data{.size = f.samples.size(),
                          .sample = [&](std::uint64_t i) { return f.samples.at(i); },
                          .held_out = {},
                          .digest = "samples"};
  const auto put_in_the_way = [&] {
    fs::create_directories(f.part(0) / "directory");
    return false;
  };
  test::check_refused(ExitCode::io, {"states-000000.safetensors"},
                      [&] { TrainLoop(f.options, f.model, data, put_in_the_way).run(); });
  CHECK(newest_checkpoint(f.dir / "out/checkpoints").step == 2);
}

TEST_CASE("cached states are for one rank") {
  test::ThreadRanks run;
  const test::TempDir dir;
  run.model = test::TinyModel{}.write(dir / "m");
  run.samples = test::tiny_samples(8, 97, 2);
  run.options = {.depths = "1,3", .steps = 2, .dtype = "f32"};
  run.options.out = dir / "out";
  run.options.cache_states = dir / "states";
  run.world = run.stages = 2;
  for (const auto& result : run.run()) {
    REQUIRE(result.error);
    CHECK(result.error->code() == ExitCode::usage);
    CHECK(
        std::string(result.error->what()).find("--cache-states is for one rank, and there are 2") !=
        std::string::npos);
  }
  CHECK_FALSE(fs::exists(dir / "states"));
}
