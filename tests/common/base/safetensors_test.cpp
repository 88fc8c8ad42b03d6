#include "common/base/safetensors.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/base/finite.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

namespace fs = std::filesystem;
using dex::ExitCode;
using dex::StoredTensor;
using dex::StoredType;
using dex::WeightFile;
using dex::test::check_refused;
using dex::test::TempDir;

namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\7');
}

void refuse(const std::string& bytes, std::vector<std::string> words) {
  const TempDir dir;
  const fs::path file = dir.write("x.safetensors", bytes);
  words.push_back(file.string());
  check_refused(ExitCode::io, words, [&] { WeightFile::open(file); });
}

template <typename Value>
StoredTensor stored(StoredType type, std::vector<std::int64_t> shape,
                    const std::vector<Value>& values) {
  return {type, std::move(shape), std::as_bytes(std::span(values))};
}

const std::vector<float> kFloats{1.5f, -2.25f, 3e30f, 0.0f, -0.0f, 7.0f};
const std::vector<std::int64_t> kLongs{-5, 1LL << 60};
const std::vector<std::uint8_t> kBytes{1, 2, 3};

std::map<std::string, StoredTensor> sample() {
  return {{"floats", stored(StoredType::f32, {2, 3}, kFloats)},
          {"longs", stored(StoredType::i64, {2}, kLongs)},
          {"bytes", stored(StoredType::u8, {3, 1}, kBytes)},
          {"scalar", stored(StoredType::f32, {}, std::vector<float>{})},
          {"none", stored(StoredType::bf16, {4, 0, 2}, std::vector<float>{})}};
}

bool same(const StoredTensor& a, const StoredTensor& b) {
  return a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
}

// Two shards and an index in `dir`; returns the index as JSON.
nlohmann::json write_shards(const TempDir& dir) {
  dex::write_safetensors(dir / "model-00001-of-00002.safetensors",
                         {{"a", stored(StoredType::f32, {6}, kFloats)}}, {{"format", "pt"}});
  dex::write_safetensors(
      dir / "model-00002-of-00002.safetensors",
      {{"b", stored(StoredType::i64, {2}, kLongs)}, {"c", stored(StoredType::u8, {3}, kBytes)}},
      {});
  nlohmann::json index = {{"metadata", {{"total_size", 43}}},
                          {"weight_map",
                           {{"a", "model-00001-of-00002.safetensors"},
                            {"b", "model-00002-of-00002.safetensors"},
                            {"c", "model-00002-of-00002.safetensors"}}}};
  dir.write("model.safetensors.index.json", index.dump());
  return index;
}

}  // namespace

TEST_CASE("tensors come back as they were written, scalars and empty ones too") {
  const TempDir dir;
  const float alpha = 0.001f;
  auto tensors = sample();
  tensors["scalar"].bytes = std::as_bytes(std::span(&alpha, 1));
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"digest", "abc"}};
  dex::write_safetensors(dir / "a.safetensors", tensors, metadata);
  const WeightFile file = WeightFile::open(dir / "a.safetensors");
  CHECK(file.metadata() == metadata);
  CHECK(file.origin() == (dir / "a.safetensors").string());
  REQUIRE(file.tensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    REQUIRE(file.has(name));
    CHECK(same(file.at(name), tensor));
  }
  CHECK_FALSE(file.has("other"));
  check_refused(ExitCode::io, {"a.safetensors", "no tensor other"}, [&] { file.at("other"); });
}

TEST_CASE("NaN and infinity are seen in every type and place, and nothing else is") {
  for (std::uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const std::vector<std::uint16_t> half{std::uint16_t(bits)};
    CAPTURE(bits);
    REQUIRE(dex::all_finite(stored(StoredType::bf16, {1}, half)) ==
            std::isfinite(std::bit_cast<float>(bits << 16)));
    REQUIRE(dex::all_finite(stored(StoredType::f16, {1}, half)) == ((bits >> 10 & 31u) != 31u));
  }
  const auto check = [&]<typename Value>(StoredType type, Value sound) {
    using Limits = std::numeric_limits<Value>;
    for (const Value extreme :
         {Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(), Value(0)})
      CHECK(dex::all_finite(stored(type, {1}, std::vector<Value>{extreme})));
    for (const Value bad :
         {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN()})
      for (std::size_t at = 0; at < 67; ++at) {
        std::string bytes(1 + 67 * sizeof(Value), '\0');  // one byte off every alignment
        for (std::size_t i = 0; i < 67; ++i)
          std::memcpy(&bytes[1 + i * sizeof(Value)], i == at ? &bad : &sound, sizeof(Value));
        REQUIRE_FALSE(dex::all_finite({type, {67}, std::as_bytes(std::span(bytes).subspan(1))}));
      }
  };
  check(StoredType::f32, 1.0f);
  check(StoredType::f64, 1.0);
  CHECK(dex::all_finite(
      stored(StoredType::i64, {2}, std::vector<std::int64_t>{-1, 0x7ff0000000000000})));
  CHECK(dex::all_finite({StoredType::f32, {0}, {}}));
}

TEST_CASE(
    "equal input gives equal bytes, with the data aligned to 64 bytes and tensors in name order") {
  const TempDir dir;
  auto tensors = sample();
  tensors.erase("scalar");
  dex::write_safetensors(dir / "a.safetensors", tensors, {{"x", "1"}});
  dex::write_safetensors(dir / "b.safetensors", tensors, {{"x", "1"}});
  const std::string bytes = dex::read_file(dir / "a.safetensors");
  CHECK(bytes == dex::read_file(dir / "b.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK((length + 8) % 64 == 0);
  CHECK(bytes.size() == 8 + length + 3 + 24 + 16);
  CHECK(bytes.substr(8 + length, 3) == std::string("\1\2\3"));  // "bytes" is the first name
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  CHECK(header["bytes"]["data_offsets"] == nlohmann::json({0, 3}));
  CHECK(header["floats"]["data_offsets"] == nlohmann::json({3, 27}));
  CHECK(header["floats"]["dtype"] == "F32");
}

TEST_CASE("an open file outlives its moves") {
  const TempDir dir;
  dex::write_safetensors(dir / "a.safetensors", {{"a", stored(StoredType::f32, {6}, kFloats)}}, {});
  WeightFile first = WeightFile::open(dir / "a.safetensors");
  const std::byte* where = first.at("a").bytes.data();
  WeightFile second = std::move(first);
  CHECK(second.at("a").bytes.data() == where);
  CHECK(same(second.at("a"), stored(StoredType::f32, {6}, kFloats)));
}

TEST_CASE("every cut of a small file is refused") {
  const TempDir dir;
  dex::write_safetensors(dir / "whole.safetensors", {{"a", stored(StoredType::f32, {6}, kFloats)}},
                         {});
  const std::string whole = dex::read_file(dir / "whole.safetensors");
  const fs::path cut = dir / "cut.safetensors";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    dir.write("cut.safetensors", whole.substr(0, size));
    const auto error = dex::test::error_of([&] { WeightFile::open(cut); });
    REQUIRE(error);
    REQUIRE(error->code() == ExitCode::io);
    REQUIRE(std::string(error->what()).starts_with(cut.string()));
  }
  dir.write("cut.safetensors", whole + "x");
  check_refused(ExitCode::io, {"25 bytes of data", "24"}, [&] { WeightFile::open(cut); });
}

TEST_CASE("headers that break a rule of the format are refused by that rule") {
  const auto entry = [](const std::string& fields, std::size_t data) {
    return file_of(fmt::format("{{\"a\":{{{}}}}}", fields), data);
  };
  const std::string f32 = R"("dtype":"F32",)";
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,4])", 4),
         {"tensor a", "4 bytes", "F32 [2]", "needs 8"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,9])", 8),
         {"tensor a", "[0, 9]", "8 bytes of data"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[8,0])", 8), {"tensor a", "[8, 0]"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0])", 8), {"1 numbers"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,4,8])", 8), {"3 numbers"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[-8,0])", 8), {"data_offsets", "whole number"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,8.0])", 8), {"data_offsets", "whole number"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,1e400])", 8), {"not JSON"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,18446744073709551615])", 8),
         {"data_offsets", "whole number"});
  refuse(entry(f32 + R"("shape":[-2],"data_offsets":[0,8])", 8), {"shape", "whole number"});
  refuse(entry(f32 + R"("shape":2,"data_offsets":[0,8])", 8), {"shape is a JSON number"});
  refuse(entry(f32 + R"("shape":[4611686018427387904,4],"data_offsets":[0,0])", 0),
         {"more than 2^64"});
  refuse(entry(f32 + R"("shape":[4611686018427387904],"data_offsets":[0,0])", 0),
         {"more than 2^64"});
  refuse(entry(f32 + R"("shape":[2])", 8), {"no data_offsets"});
  refuse(entry(f32 + R"("data_offsets":[0,8])", 8), {"no shape"});
  refuse(entry(R"("shape":[2],"data_offsets":[0,8])", 8), {"no dtype"});
  refuse(entry(R"("dtype":"U32","shape":[2],"data_offsets":[0,8])", 8),
         {"dtype is U32", "wanted F32"});
  refuse(entry(R"("dtype":5,"shape":[2],"data_offsets":[0,8])", 8), {"dtype is number"});
  refuse(entry(f32 + R"("shape":[2],"data_offsets":[0,8],"more":1)", 8), {"unknown field"});
  refuse(entry(f32 + R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 8), {"dtype", "twice"});
  refuse(file_of(R"({"a":5})", 0), {"tensor a", "JSON number"});
  refuse(file_of("[]", 0), {"does not begin with {"});
  refuse(file_of("  ", 0), {"does not begin with {"});
  refuse(file_of("{}x", 0), {"not JSON"});
  refuse(file_of("{", 0), {"claims 1 bytes"});
  refuse(file_of("{}", 3), {"3 bytes of data", "need 0"});
  refuse(file_of(R"({"__metadata__":{"a":1}})", 0), {"__metadata__", "number"});
  refuse(file_of(R"({"__metadata__":[]})", 0), {"__metadata__", "array"});
  refuse(file_of("{\"\xff\":5}", 0), {"not JSON"});
}

TEST_CASE("names that stand twice and bytes that stand twice or for nothing are refused") {
  const auto one = [](const char* name, int begin, int end) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                       end - begin, begin, end);
  };
  refuse(file_of("{" + one("a", 0, 4) + "," + one("a", 4, 8) + "}", 8), {"\"a\"", "twice"});
  refuse(file_of("{" + one("a", 0, 5) + "," + one("b", 4, 8) + "}", 8), {"overlap at byte 4"});
  refuse(file_of("{" + one("a", 0, 8) + "," + one("b", 0, 8) + "}", 8), {"overlap at byte 0"});
  refuse(file_of("{" + one("a", 0, 8) + "," + one("b", 2, 4) + "}", 8), {"overlap"});
  refuse(file_of("{" + one("a", 0, 3) + "," + one("b", 4, 8) + "}", 8), {"gap at byte 3"});
  refuse(file_of("{" + one("a", 1, 8) + "}", 8), {"gap at byte 0"});
  refuse(file_of("{" + one("a", 0, 7) + "}", 8), {"8 bytes of data", "need 7"});
  const TempDir dir;
  const auto fine = WeightFile::open(
      dir.write("x.safetensors", file_of("{" + one("b", 0, 4) + "," + one("a", 4, 8) + "}   ", 8)));
  CHECK(fine.at("a").bytes.data() == fine.at("b").bytes.data() + 4);
  CHECK(WeightFile::open(dir.write("y.safetensors", file_of(R"({"__metadata__":null})", 0)))
            .tensors()
            .empty());
}

TEST_CASE("a good file whose length begins like another format's mark is read") {
  const TempDir dir;
  std::string header = "{}";
  header.resize(0x8b1f, ' ');  // bytes 1f 8b: the mark of gzip
  CHECK(WeightFile::open(dir.write("x.safetensors", file_of(header, 0))).tensors().empty());
}

TEST_CASE("a sharded set is read through its index") {
  const TempDir dir;
  write_shards(dir);
  dir.write("stray.safetensors", "not a shard at all");
  const WeightFile file = WeightFile::open(dir.path());
  CHECK(file.tensors().size() == 3);
  CHECK(same(file.at("a"), stored(StoredType::f32, {6}, kFloats)));
  CHECK(same(file.at("b"), stored(StoredType::i64, {2}, kLongs)));
  CHECK(same(file.at("c"), stored(StoredType::u8, {3}, kBytes)));
  CHECK(file.metadata().at("format") == "pt");
  CHECK(WeightFile::open(dir / "model.safetensors.index.json").tensors().size() == 3);
  dex::write_safetensors(dir / "model.safetensors", {{"z", stored(StoredType::u8, {3}, kBytes)}},
                         {});
  CHECK(WeightFile::open(dir.path()).has("z"));  // as transformers: the single file comes first
}

TEST_CASE("weight files that lie beside those that are read are told by name") {
  const auto told = [](const TempDir& dir) {
    const dex::test::CapturedLog log;
    WeightFile::open(dir.path());
    return log.text();
  };
  const auto one = stored(StoredType::u8, {3}, kBytes);
  const TempDir sharded;
  write_shards(sharded);
  CHECK(told(sharded).empty());
  sharded.write("config.json", "{}");
  CHECK(told(sharded).empty());
  sharded.write("z.safetensors", "not a shard at all");
  sharded.write("consolidated.safetensors", "nor this");
  CHECK(told(sharded).find("model.safetensors.index.json: beside it, and not read: "
                           "consolidated.safetensors, z.safetensors\n") != std::string::npos);
  dex::write_safetensors(sharded / "model.safetensors", {{"z", one}}, {});
  CHECK(told(sharded).find("model.safetensors: beside it, and not read: consolidated.safetensors, "
                           "model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, "
                           "model.safetensors.index.json, z.safetensors\n") != std::string::npos);
  const TempDir single;
  dex::write_safetensors(single / "model.safetensors", {{"z", one}}, {});
  CHECK(told(single).empty());
  dex::write_safetensors(single / "adapter_model.safetensors", {{"z", one}}, {});
  CHECK(told(single).find("not read: adapter_model.safetensors\n") != std::string::npos);
  const dex::test::CapturedLog log;
  WeightFile::open(single / "adapter_model.safetensors");  // a file by its name stands alone
  CHECK(log.text().empty());
}

TEST_CASE("an index that does not fit its shards is refused") {
  const TempDir dir;
  const nlohmann::json good = write_shards(dir);
  const auto refuse_index = [&](ExitCode code, const nlohmann::json& weight_map,
                                std::vector<std::string> words) {
    CAPTURE(weight_map.dump());
    dir.write("model.safetensors.index.json", nlohmann::json({{"weight_map", weight_map}}).dump());
    words.push_back("model.safetensors.index.json");
    check_refused(code, words, [&] { WeightFile::open(dir.path()); });
  };
  nlohmann::json map = good["weight_map"];
  map["d"] = "model-00003-of-00004.safetensors";
  map["e"] = "model-00004-of-00004.safetensors";
  refuse_index(
      ExitCode::usage, map,
      {"2 of the 4 files", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"});
  map = good["weight_map"];
  map["d"] = map["a"];
  refuse_index(ExitCode::io, map, {"tensor d is not in model-00001"});
  map = good["weight_map"];
  map["c"] = map["a"];
  refuse_index(ExitCode::io, map, {"tensor c stands in model-00002", "places it in model-00001"});
  map = good["weight_map"];
  map.erase("c");
  refuse_index(ExitCode::io, map, {"tensor c stands in model-00002", "places it in no file"});
  for (const char* name : {"../a.safetensors", "/etc/passwd", "", ".", "..", "a/b.safetensors"}) {
    map = good["weight_map"];
    map["a"] = name;
    refuse_index(ExitCode::io, map, {"places a in", "beside the index"});
  }
  map["a"] = 5;
  refuse_index(ExitCode::io, map, {"weight_map of a", "number"});
  refuse_index(ExitCode::io, nlohmann::json::object(), {"no weight_map"});
  dir.write("model.safetensors.index.json", "{}");
  check_refused(ExitCode::io, {"no weight_map"}, [&] { WeightFile::open(dir.path()); });
  dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "x", "a": "y"}})");
  check_refused(ExitCode::io, {"\"a\"", "twice"}, [&] { WeightFile::open(dir.path()); });
}

TEST_CASE("missing files and directories without weights are usage errors") {
  const TempDir dir;
  check_refused(ExitCode::usage, {"none.safetensors", "no such"},
                [&] { WeightFile::open(dir / "none.safetensors"); });
  check_refused(ExitCode::usage, {dir.path().string(), "model.safetensors", "index"},
                [&] { WeightFile::open(dir.path()); });
  fs::create_directory(dir / "model.safetensors");
  check_refused(ExitCode::usage, {"not a file"}, [&] { WeightFile::open(dir.path()); });
}

TEST_CASE("a failed write leaves the old file and nothing else") {
  const TempDir dir;
  check_refused(ExitCode::io, {"none"},
                [&] { dex::write_safetensors(dir / "none" / "a.safetensors", {}, {}); });
  dex::write_safetensors(dir / "a.safetensors", {}, {{"k", "v"}});
  CHECK(WeightFile::open(dir / "a.safetensors").metadata().at("k") == "v");
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator{}) == 1);
}

TEST_CASE("the ten broken files are refused, pointers and web pages by name") {
  const auto cases = dex::test::shared("cases/d-f1");
  if (!cases) return;
  const std::map<std::string, std::vector<std::string>> words{
      {"lfs-pointer", {"git-lfs pointer", "135 bytes"}},
      {"error-page", {"web page", "88 bytes"}},
      {"empty", {"0 bytes"}},
      {"seven-bytes", {"7 bytes"}},
      {"len-2e63", {"9223372036854775808", "62"}},
      {"len-past-eof", {"9054", "62"}},
      {"len-zero", {"claims 0 bytes"}},
      {"len-mid-header", {"not JSON"}},
      {"data-cut", {"[0, 8]", "5 bytes"}},
      {"header-not-json", {"does not begin with {"}}};
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(*cases)) {
    CAPTURE(entry.path().string());
    auto wanted = words.at(entry.path().stem().string());
    wanted.push_back(entry.path().string());
    check_refused(ExitCode::io, wanted, [&] { WeightFile::open(entry.path()); });
    ++seen;
  }
  CHECK(seen == 10);
}

TEST_CASE("real pointers and quantised shards are refused by what they are") {
  const auto negative = dex::test::shared("data/negative");
  if (!negative) return;
  check_refused(ExitCode::io, {"Xet pointer", "112 bytes"}, [&] {
    WeightFile::open(*negative / "xet-pointer-model-00001-of-00002.safetensors");
  });
  check_refused(ExitCode::io, {"dtype is U32", "quantised"},
                [&] { WeightFile::open(*negative / "mlx-quantised-sharded"); });
}

TEST_CASE("a set with a missing shard is refused with the missing file") {
  const auto model = dex::test::shared("cases/d-f2");
  if (!model) return;
  check_refused(ExitCode::usage, {"1 of the 2 files", "model-00002-of-00002.safetensors"},
                [&] { WeightFile::open(*model); });
  const WeightFile shard = WeightFile::open(*model / "model-00001-of-00002.safetensors");
  CHECK(shard.at("model.embed_tokens.weight").shape == std::vector<std::int64_t>{320, 32});
  CHECK(shard.at("model.embed_tokens.weight").bytes.size() == 320 * 32 * 2);
}

TEST_CASE("the small Qwen3 model's weights are read") {
  const auto model = dex::test::shared("cases/d-m1");
  if (!model) return;
  const WeightFile file = WeightFile::open(*model);
  CHECK(file.at("model.layers.0.self_attn.q_proj.weight").shape ==
        std::vector<std::int64_t>{64, 32});
  CHECK(file.at("model.layers.3.self_attn.k_norm.weight").type == StoredType::bf16);
  CHECK_FALSE(file.has("lm_head.weight"));
}
