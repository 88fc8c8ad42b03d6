#include "common/model/fingerprint.h"

#include <catch2/catch.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/model/model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_faults.h"
#include "tests/support/tiny_model.h"

using namespace dex;
namespace fs = std::filesystem;
using test::TempDir;
using test::TinyModel;

namespace {

// Matrices of 16 KiB and more: with a middle that the fingerprint does not see.
const TinyModel kTiny{
    .layers = 3, .hidden = 64, .kv_heads = 4, .head_dim = 16, .intermediate = 96, .tied = false};

constexpr DigestsOf kAll = DigestsOf::what_is_read;

Digests expected(const fs::path& path) {
  const WeightFile weights = WeightFile::open(path);
  Digests digests;
  for (const auto& [name, tensor] : weights.tensors())
    digests[name] =
        sha256_of({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  return digests;
}

}  // namespace

TEST_CASE("a loaded model has the digest of every tensor's bytes, for any type and layout") {
  const TempDir dir;
  for (const TinyModel& tiny : {kTiny, TinyModel{.family = "qwen3"}}) {
    const fs::path path = tiny.write(dir / "m");
    const Digests wanted = expected(path);
    const DepthSet depths({1}, tiny.layers);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
      CHECK(Model::load(path, depths, dtype, WeightLayout::panels, kAll).digests == wanted);
    CHECK(Model::load(path, depths, Dtype::bf16, WeightLayout::rows, kAll).digests == wanted);
    WeightFile weights = WeightFile::open(path);
    CHECK(model_digests(read_model_config(path), weights) == wanted);
  }
}

TEST_CASE("shares of a model have the digests of what they read, together those of all") {
  const TempDir dir;
  const fs::path path = kTiny.write(dir / "m");
  const DepthSet depths({1, 2}, 3);
  Digests all;
  for (int k = 0; k < 3; ++k) {
    const Model share =
        Model::load(path, depths, Dtype::f32, WeightLayout::rows, StageShare{k, k + 1}, kAll);
    for (const auto& [name, digest] : share.known_digests()) {
      const bool of_layer = name.starts_with("model.layers.");
      CHECK((!of_layer || name.starts_with(fmt::format("model.layers.{}.", k))));
      CHECK((name != "model.embed_tokens.weight" || k == 0));
      all[name] = digest;
    }
  }
  CHECK(all == expected(path));
}

TEST_CASE("no digest is taken of a model that is compared with nothing") {
  const TempDir dir;
  const fs::path path = TinyModel{}.write(dir / "m");
  const auto load = [&](DigestsOf digests) {
    return Model::load(path, DepthSet({2}, 4), Dtype::f32, WeightLayout::panels, digests);
  };
  test::give_threads(0);  // digests are taken by threads of their own, which cannot be had now
  CHECK_NOTHROW(load(DigestsOf::nothing));
  CHECK_THROWS_WITH(load(kAll), Catch::Contains("digests of tensors"));
  test::give_threads(-1);
  CHECK(load(kAll).digests.has_value());
  const Model plain = Model::load(path, DepthSet({2}, 4), Dtype::f32);
  CHECK_FALSE(plain.digests.has_value());
  CHECK_THROWS_AS(plain.known_digests(), Error);
}

TEST_CASE("a byte in a tensor's middle changes its digest alone, and not the fingerprint") {
  const TempDir dir;
  const fs::path path = kTiny.write(dir / "m"), file = path / "model.safetensors";
  const Model before = Model::load(path, DepthSet({1}, 3), Dtype::f32, WeightLayout::rows, kAll);
  const std::string whole = read_file(file);
  std::map<std::string, std::size_t> middles;
  {
    const WeightFile weights = WeightFile::open(path);
    std::size_t place = whole.size();
    for (const auto& [name, tensor] : weights.tensors()) place -= tensor.bytes.size();
    for (const auto& [name, tensor] : weights.tensors()) {  // which lie in this order
      if (tensor.bytes.size() > 8192) middles[name] = place + tensor.bytes.size() / 2;
      place += tensor.bytes.size();
    }
  }
  CHECK(middles.size() == 3 * 7 + 2);
  for (const auto& [name, place] : middles) {
    CAPTURE(name);
    std::string altered = whole;
    altered[place] ^= 1;
    write_file(file, altered);
    const Model after = Model::load(path, DepthSet({1}, 3), Dtype::f32, WeightLayout::rows, kAll);
    CHECK(after.fingerprint == before.fingerprint);
    Digests digests = after.known_digests();
    CHECK(digests.at(name) != before.known_digests().at(name));
    digests[name] = before.known_digests().at(name);
    CHECK(digests == before.known_digests());
    CHECK(joint_digest(after.known_digests()) != joint_digest(before.known_digests()));
  }
}
