// A model whose weights hold NaN or infinity: a fault of its file, told with the tensor's name.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/model/model.h"
#include "tests/support/errors.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

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
             "decode --prompt-ids 1,2", "decode --prompt-ids 1,2 --method ar",
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

}  // namespace
}  // namespace dex
