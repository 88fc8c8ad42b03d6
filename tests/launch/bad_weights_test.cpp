// A model whose weight file has a fault: NaN or infinity in it, other bytes than adapters were made
// for, or a cut while it is read. It is told with the tensor's or the file's name.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/model/model.h"
#include "decode/session.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/process.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"
#include "train/loop/train_loop.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::string> tensor_names(const fs::path& model) {
  std::vector<std::string> names;
  const WeightFile weights = WeightFile::open(model);
  for (const auto& [name, tensor] : weights.tensors()) names.push_back(name);
  return names;
}

// The last value of the tensor becomes `bad`; the others stay.
void spoil(const fs::path& model, const fs::path& sound, const std::string& name, float bad) {
  const WeightFile weights = WeightFile::open(sound);
  auto tensors = weights.tensors();
  std::vector<std::byte> bytes(tensors.at(name).bytes.begin(), tensors.at(name).bytes.end());
  std::memcpy(bytes.data() + bytes.size() - sizeof bad, &bad, sizeof bad);
  tensors.at(name).bytes = bytes;
  write_safetensors(model / "model.safetensors", tensors, weights.metadata());
}

TEST_CASE(
    "a value that is no number is refused in every tensor, type and layout, with the tensor's "
    "name") {
  const test::TempDir dir;
  const test::TinyModel tiny{.family = "qwen3", .layers = 2, .tied = false};
  const fs::path sound = tiny.write(dir / "sound"), model = tiny.write(dir / "m");
  const auto names = tensor_names(sound);
  REQUIRE(names.size() == 2 * 11 + 3);
  for (const std::string& name : names) {
    CAPTURE(name);
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      spoil(model, sound, name, bad);
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
        test::check_refused(ExitCode::io, {"model.safetensors: tensor " + name + " holds"},
                            [&] { Model::load(model, DepthSet({1}, 2), dtype); });
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
        test::check_refused(ExitCode::io, {"tensor " + name + " holds"}, [&] {
          Model::load(model, DepthSet({1}, 2), dtype, WeightLayout::rows);
        });
    }
    spoil(model, sound, name, std::numeric_limits<float>::max() / 2);  // large is not too large
    CHECK_NOTHROW(Model::load(model, DepthSet({1}, 2), Dtype::f32));
  }
}

TEST_CASE(
    "every command ends with exit code 74 and the tensor's name where weights are no numbers") {
  const test::TempDir dir;
  const test::TinyModel tiny;
  const fs::path sound = tiny.write(dir / "sound"), model = tiny.write(dir / "m");
  const std::string name = "model.layers.1.self_attn.v_proj.weight";
  spoil(model, sound, name, kNan);
  const auto jobs = dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\n").string();
  for (const char* dtype : {"f32", "bf16"})
    for (const std::string& command : std::vector<std::string>{
             "decode --prompt-ids 1,2 --method dex", "decode --prompt-ids 1,2 --method ar",
             "bench --tokens 2 --prompt-tokens 2",
             "ead --prompts " + jobs + " --out " + (dir / "ead").string(),
             "train --depths 2 --eval-samples 0 --data " + (dir / "data").string() + " --out " +
                 (dir / "run").string()}) {
      const test::Outcome outcome =
          test::dex_program(command + " --dtype " + dtype + " --model " + model.string());
      CAPTURE(command, dtype, outcome.err);
      CHECK(outcome.code == 74);
      CHECK(outcome.err.find("tensor " + name + " holds NaN or infinity") != std::string::npos);
    }
  CHECK_FALSE(fs::exists(dir / "ead"));
}

// Bytes in the middle of a tensor, which no fingerprint of its ends sees.
void alter_middle(const fs::path& model, const fs::path& sound, const std::string& name) {
  const WeightFile weights = WeightFile::open(sound);
  auto tensors = weights.tensors();
  std::vector<std::byte> bytes(tensors.at(name).bytes.begin(), tensors.at(name).bytes.end());
  bytes[bytes.size() / 2] ^= std::byte{1};
  tensors.at(name).bytes = bytes;
  write_safetensors(model / "model.safetensors", tensors, weights.metadata());
}

void train_tiny(const fs::path& model, const fs::path& out) {
  const Model rows =
      Model::load(model, DepthSet({1}, 2), Dtype::f32, WeightLayout::rows, DigestsOf::what_is_read);
  const auto samples = test::tiny_samples(3, 97, 2);
  const TrainingData data{.size = samples.size(),
                          .sample = [&](std::uint64_t index) { return samples.at(index); },
                          .held_out = samples,
                          .digest = "samples"};
  TrainLoop({.out = out, .depths = "1", .steps = 1, .batch_size = 2, .dtype = "f32"}, rows, data,
            [] { return false; })
      .run();
}

// As a version before the digests of the model's tensors wrote it.
void make_old(const fs::path& dir) {
  auto config = nlohmann::json::parse(read_file(dir / "adapter_config.json"));
  config.erase("model_tensors");
  config.erase("config_sha256");
  config["format"] = "dex-adapter-2";
  config["config_sha256"] = sha256_of(config.dump());
  write_file(dir / "adapter_config.json", config.dump(2) + "\n");
}

const test::TinyModel kWithMiddles{
    .layers = 2, .hidden = 64, .kv_heads = 4, .head_dim = 16, .intermediate = 96, .tied = false};

std::vector<std::string> names_with_middles(const fs::path& model) {
  std::vector<std::string> names;
  const WeightFile weights = WeightFile::open(model);
  for (const auto& [name, tensor] : weights.tensors())
    if (tensor.bytes.size() > 8192) names.push_back(name);
  return names;
}

TEST_CASE("a byte altered in the middle of any tensor is noticed when decoding with adapters") {
  const test::TempDir dir;
  const fs::path sound = kWithMiddles.write(dir / "sound"), model = kWithMiddles.write(dir / "m");
  train_tiny(model, dir / "run");
  const auto names = names_with_middles(sound);
  REQUIRE(names.size() == 2 * 7 + 2);
  for (const std::string& name : names) {
    CAPTURE(name);
    alter_middle(model, sound, name);
    for (const char* adapters : {"run", "run/best"})
      test::check_refused(ExitCode::usage, {"adapter_model.safetensors", name, "SHA-256"}, [&] {
        Session({.model = model, .adapters = dir / adapters, .threads = 1});
      });
    CHECK_NOTHROW(Session({.model = model, .depths = "1", .threads = 1}));
  }
  CHECK_NOTHROW(Session({.model = sound, .adapters = dir / "run", .threads = 1}));
}

TEST_CASE("dex inspect --rewrite gives old adapters of a run the form of today, byte for byte") {
  const test::TempDir dir;
  const fs::path model = kWithMiddles.write(dir / "m"),
                 altered = kWithMiddles.write(dir / "altered");
  train_tiny(model, dir / "run");
  const std::vector<fs::path> both{dir / "run", dir / "run/best"};
  std::vector<std::string> before;
  for (const fs::path& adapters : both) {
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      before.push_back(read_file(adapters / file));
    make_old(adapters);
  }
  {  // which load, with a word on what to do
    const test::CapturedLog log;
    Session({.model = model, .adapters = dir / "run", .threads = 1});
    CHECK(log.has("dex inspect --rewrite"));
  }
  const std::string command = "inspect --json --rewrite " + both[0].string();
  const auto outcome = test::dex_program(command + " --model " + model.string());
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(nlohmann::json::parse(outcome.out)["rewritten"].size() == 2);
  std::vector<std::string> after;
  for (const fs::path& adapters : both)
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      after.push_back(read_file(adapters / file));
  CHECK(after == before);
  const auto again = test::dex_program(command + " --model " + model.string());
  CHECK(again.code == 0);
  CHECK(nlohmann::json::parse(again.out)["rewritten"].empty());

  // new ones are held against the model, whatever the ends of its tensors say
  alter_middle(altered, model, "model.layers.1.mlp.up_proj.weight");
  const auto other = test::dex_program(command + " --model " + altered.string());
  CHECK(other.code == 2);
  CHECK(other.err.find("model.layers.1.mlp.up_proj.weight") != std::string::npos);
  const auto stranger = test::TinyModel{.seed = 2}.write(dir / "stranger");
  make_old(both[0]);
  const std::string old = read_file(both[0] / "adapter_config.json");
  CHECK(test::dex_program(command + " --model " + stranger.string()).code == 2);
  CHECK(read_file(both[0] / "adapter_config.json") == old);
  CHECK(test::dex_program(command).code == 2);
  CHECK(test::dex_program("inspect " + both[0].string() + " --model " + model.string()).code == 2);
  CHECK(test::dex_program("inspect --rewrite " + model.string() + " --model " + model.string())
            .code == 2);
}

TEST_CASE(
    "weights that are cut at any moment of loading end with exit code 74, never by a signal") {
  const test::TempDir dir;
  const test::TinyModel tiny{
      .layers = 12, .hidden = 256, .heads = 4, .kv_heads = 4, .head_dim = 64, .intermediate = 1024};
  const fs::path sound = tiny.write(dir / "sound"), model = dir / "m";
  constexpr std::uintmax_t kLeft = 100'000;
  fs::create_directory(model);
  fs::copy(sound / "config.json", model);
  // Before the program opens it, once; then later and later after it did. Its loading takes some
  // tenths of a second, so most of these cuts come while tensors are read.
  int while_read = 0;
  for (int delay = -1; delay < 30; ++delay) {
    fs::copy(sound / "model.safetensors", model, fs::copy_options::overwrite_existing);
    if (delay < 0) fs::resize_file(model / "model.safetensors", kLeft);
    test::Process process({DEX_BINARY_DIR "/dex", "decode", "--model", model.string(),
                           "--prompt-ids", "1,2", "--max-tokens", "1", "--threads", "1"},
                          dir / "log");
    if (delay >= 0) {
      REQUIRE(process.wait_until_mapped("model.safetensors"));
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * delay));
      fs::resize_file(model / "model.safetensors", kLeft);
    }
    const int code = process.wait();
    const std::string log = process.log();
    CAPTURE(delay, log);
    CHECK((code == 74 || (code == 0 && delay > 0)));
    if (code == 0) continue;
    CHECK(log.find("model.safetensors") != std::string::npos);
    const bool reading = log.find("while it was being read") != std::string::npos;
    CHECK(reading != (delay < 0));
    while_read += reading;
  }
  CHECK(while_read > 1);
}

}  // namespace
}  // namespace dex
