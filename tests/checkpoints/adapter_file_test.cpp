#include "checkpoints/adapter_file.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using test::check_refused;

namespace {

// A written adapter whose config.json goes through `change`.
void change_config(const test::TempDir& dir, const std::function<void(nlohmann::json&)>& change) {
  auto config = nlohmann::json::parse(read_file(dir / "a/adapter_config.json"));
  change(config);
  config.erase("config_sha256");
  // so that the change itself is what is refused
  config["config_sha256"] = sha256_of(config.dump());
  write_file(dir / "a/adapter_config.json", config.dump());
}

}  // namespace

TEST_CASE("an adapter file gives back what was written") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  const AdapterFile file = read_adapter_file(dir / "a", "model");
  CHECK(file.config.depths == a.config.depths);
  CHECK(file.config.width == 8);
  CHECK(file.config.data_digest == "data");
  REQUIRE(file.weights.tensors().size() == 12);
  for (const auto& [name, tensor] : a.stored) {
    CHECK(file.weights.at(name).shape == tensor.shape);
    CHECK(
        std::equal(tensor.bytes.begin(), tensor.bytes.end(), file.weights.at(name).bytes.begin()));
  }
}

TEST_CASE("equal adapters give equal bytes and leave no other file") {
  const test::TempDir dir;
  const test::AdapterTensors a, b;
  write_adapter_file(dir / "a", a.config, a.stored);
  write_adapter_file(dir / "b", b.config, b.stored);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "a")) {
    ++files;
    CHECK(read_file(entry.path()) == read_file(dir / "b" / entry.path().filename()));
  }
  CHECK(files == 2);
}

TEST_CASE("adapters of another model are refused with both fingerprints") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  check_refused(ExitCode::usage, {"model", "other"},
                [&] { read_adapter_file(dir / "a", "other"); });
}

TEST_CASE("adapters know every tensor of their model, and refuse one that is another") {
  const test::TempDir dir;
  test::AdapterTensors a;
  a.config.model_tensors = {{"embed", "e"}, {"layer.0", "0"}, {"layer.1", "1"}};
  write_adapter_file(dir / "a", a.config, a.stored);
  const AdapterFile file = read_adapter_file(dir / "a");
  CHECK(file.config.model_tensors == a.config.model_tensors);
  const test::CapturedLog log;
  using Map = std::map<std::string, std::string>;
  // all of the model, or the share that a process reads of it
  for (const Map& read : {a.config.model_tensors, Map{{"layer.1", "1"}}, Map{}}) {
    CHECK_NOTHROW(file.require_model("model", read));
    CHECK_NOTHROW(read_adapter_file(dir / "a", "model", read));
  }
  for (const auto& [name, digest] : a.config.model_tensors) {
    Map other = a.config.model_tensors;
    other[name] = "another";
    check_refused(ExitCode::usage, {(dir / "a").string(), name, " " + digest + ",", "another"},
                  [&] { file.require_model("model", other); });
  }
  check_refused(ExitCode::usage, {"layer.2", "none"},
                [&] { file.require_model("model", {{"layer.2", "2"}}); });
  CHECK(log.text().empty());
}

TEST_CASE("adapters of forms before the model's tensors were known are read with a warning") {
  const test::TempDir dir;
  test::AdapterTensors a;
  a.config.model_tensors = {{"layer.0", "0"}};
  const auto written_as = [&](const std::string& format) {
    write_adapter_file(dir / "a", a.config, a.stored);
    change_config(dir, [&](auto& config) {
      config.erase("model_tensors");
      config["format"] = format;
    });
    if (format != "dex-adapter-1") return;
    auto config = nlohmann::json::parse(read_file(dir / "a/adapter_config.json"));
    config.erase("config_sha256");
    write_file(dir / "a/adapter_config.json", config.dump());
  };
  for (const char* format : {"dex-adapter-2", "dex-adapter-1"}) {
    written_as(format);
    const test::CapturedLog log;
    const AdapterFile file = read_adapter_file(dir / "a", "model", {{"layer.0", "another"}});
    CHECK(file.config.model_tensors.empty());
    CHECK(log.has("dex inspect --rewrite"));
    CHECK(log.has((dir / "a").string()));
    check_refused(ExitCode::usage, {"other"}, [&] { read_adapter_file(dir / "a", "other"); });
  }
  written_as("dex-adapter-3");  // which must have them
  check_refused(ExitCode::io, {"model_tensors"}, [&] { read_adapter_file(dir / "a"); });
}

TEST_CASE("a missing directory or file of adapters is a usage error naming it") {
  const test::TempDir dir;
  check_refused(ExitCode::usage, {"none"}, [&] { read_adapter_file(dir / "none"); });
  const test::AdapterTensors a;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    write_adapter_file(dir / "a", a.config, a.stored);
    std::filesystem::remove(dir / "a" / name);
    check_refused(ExitCode::usage, {name}, [&] { read_adapter_file(dir / "a"); });
  }
}

TEST_CASE("tensors that the config does not promise are refused by name") {
  const test::TempDir dir;
  test::AdapterTensors a;
  const auto refused = [&](const std::string& word) {
    write_safetensors(dir / "a/adapter_model.safetensors", a.stored, {});
    check_refused(ExitCode::io, {word}, [&] { read_adapter_file(dir / "a"); });
  };
  write_adapter_file(dir / "a", a.config, a.stored);
  SECTION("one more") {
    a.stored["depth.2.alpha"] = a.stored["depth.1.alpha"];
    refused("depth.2.alpha");
  }
  SECTION("one less") {
    a.stored.erase("depth.3.up.bias");
    refused("depth.3.up.bias");
  }
  SECTION("another name") {
    a.stored["depth.3.up_bias"] = a.stored["depth.3.up.bias"];
    a.stored.erase("depth.3.up.bias");
    refused("depth.3.up.bias");
  }
  SECTION("another shape with as many numbers") {
    a.stored["depth.1.up.weight"].shape = {4, 8};
    refused("[4, 8]");
  }
  SECTION("another type") {
    a.stored["depth.1.norm.weight"].type = StoredType::i32;
    refused("I32");
  }
  SECTION("a NaN") {
    a.memory["depth.1.down.bias"][2] = std::numeric_limits<float>::quiet_NaN();
    refused("depth.1.down.bias");
  }
  SECTION("one altered number") {
    a.memory["depth.1.down.bias"][2] += 1;
    refused("digest");
  }
}

TEST_CASE("a config that is altered is refused by field") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  const auto refused = [&](const std::string& field, const nlohmann::json& value) {
    change_config(dir, [&](auto& config) { config[field] = value; });
    check_refused(ExitCode::io, {field}, [&] { read_adapter_file(dir / "a"); });
  };
  SECTION("format") { refused("format", "dex-adapter-9"); }
  SECTION("depths out of order") { refused("depths", {3, 1}); }
  SECTION("depths of text") { refused("depths", {"3"}); }
  SECTION("a depth over 32 bits") { refused("depths", {1, 4294967299}); }
  SECTION("a depth that is a fraction") { refused("depths", {1, 3.5}); }
  SECTION("width over 64 bits") { refused("width", 18446744073709551615u); }
  SECTION("no depths") { refused("depths", nlohmann::json::array()); }
  SECTION("activation") { refused("activation", "gelu"); }
  SECTION("dtype") { refused("dtype", "bf16"); }
  SECTION("width as text") { refused("width", "8"); }
  SECTION("width as a fraction") { refused("width", 8.5); }
  SECTION("width out of range") { refused("width", -1); }
  SECTION("digests of the model as a list") { refused("model_tensors", {1, 2}); }
  SECTION("a digest of the model as a number") { refused("model_tensors", {{"a", 1}}); }
  SECTION("a field less") {
    change_config(dir, [](auto& config) { config.erase("tau"); });
    check_refused(ExitCode::io, {"tau"}, [&] { read_adapter_file(dir / "a"); });
  }
  SECTION("not JSON") {
    write_file(dir / "a/adapter_config.json", "{\"format\": ");
    check_refused(ExitCode::io, {"adapter_config.json"}, [&] { read_adapter_file(dir / "a"); });
  }
}

TEST_CASE(
    "a config whose digest does not fit is refused, one of the format before it had a digest is "
    "read") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  auto config = nlohmann::json::parse(read_file(dir / "a/adapter_config.json"));
  config["tau"] = 2;
  write_file(dir / "a/adapter_config.json", config.dump());
  check_refused(ExitCode::io, {"adapter_config.json", "altered"},
                [&] { read_adapter_file(dir / "a"); });
  config["format"] = "dex-adapter-1";
  write_file(dir / "a/adapter_config.json", config.dump());
  check_refused(ExitCode::io, {"dex-adapter-1"}, [&] { read_adapter_file(dir / "a"); });
  config.erase("config_sha256");
  write_file(dir / "a/adapter_config.json", config.dump());
  CHECK(read_adapter_file(dir / "a").config.tau == 2);
}

TEST_CASE("adapter files cut anywhere are refused") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const std::string whole = read_file(dir / "a" / name);
    // the config's closing newline may go
    const std::size_t last = whole.size() - (name[8] == 'c' ? 2 : 1);
    for (std::size_t size = 0; size <= last; size += 1 + size / 40) {
      write_file(dir / "a" / name, whole.substr(0, size));
      CHECK_THROWS_AS(read_adapter_file(dir / "a"), Error);
    }
    write_file(dir / "a" / name, whole);
  }
  CHECK_NOTHROW(read_adapter_file(dir / "a"));
}

TEST_CASE("adapters with NaN are never written") {
  const test::TempDir dir;
  test::AdapterTensors a;
  a.memory["depth.1.alpha"][0] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(write_adapter_file(dir / "a", a.config, a.stored), Error);
  CHECK_FALSE(std::filesystem::exists(dir / "a/adapter_model.safetensors"));
}

TEST_CASE("adapters have the paper's numbers of parameters") {
  // Appendix C.2, hidden size 8192 in all three.
  const std::vector<std::pair<int, double>> wanted{{2, 536.9e6}, {3, 805.4e6}, {7, 1.88e9}};
  for (const auto& [count, parameters] : wanted) {
    dex::AdapterConfig config{.hidden_size = 8192, .width = 2 * 8192};
    for (int depth = 1; depth <= count; ++depth) config.depths.push_back(depth);
    double sum = 0;
    for (const auto& [name, shape] : dex::adapter_tensors(config)) {
      double size = 1;
      for (std::int64_t n : shape) size *= double(n);
      sum += size;
    }
    CHECK(sum == Approx(parameters).epsilon(1e-3));
  }
}
