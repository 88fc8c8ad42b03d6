#include "decode/session.h"

#include <catch2/catch.hpp>

#include "checkpoints/adapter_file.h"
#include "common/base/error.h"
#include "common/model/tensors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

// The exit code and message of what `action` throws.
template <typename Action>
std::pair<ExitCode, std::string> refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::done, "nothing was thrown"};
}

void write_adapters(const std::filesystem::path& dir, const ModelConfig& config,
                    const std::string& fingerprint, const Digests& digests = {}) {
  const auto weights = AdapterWeights::paper_start(config, 2 * config.hidden_size, 1, 2);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, tensor] : weights.named())
    tensors["depth.2." + name] = stored_view(tensor);
  write_adapter_file(dir,
                     {.depths = {2},
                      .hidden_size = config.hidden_size,
                      .width = 2 * config.hidden_size,
                      .model_fingerprint = fingerprint,
                      .model_tensors = digests},
                     tensors);
}

}  // namespace

TEST_CASE("a session takes digests of the model where adapters name them, and nowhere else") {
  const test::TempDir dir;
  const auto path = test::TinyModel{}.write(dir / "m");
  const Model model = Model::load(path, DepthSet({2}, 4), Dtype::f32, WeightLayout::panels,
                                  DigestsOf::what_is_read);
  const auto taken = [&](const fs::path& adapters) {
    return Session({.model = path, .adapters = adapters, .depths = "2", .threads = 1})
        .model()
        .digests.has_value();
  };
  CHECK_FALSE(taken({}));
  write_adapters(dir / "named", model.config, model.fingerprint, model.known_digests());
  CHECK(taken(dir / "named"));
  write_adapters(dir / "ends only", model.config, model.fingerprint, {});  // an older form
  CHECK_FALSE(taken(dir / "ends only"));

  auto others = model.known_digests();
  others.at("model.layers.3.mlp.up_proj.weight") = "another";
  write_adapters(dir / "others", model.config, model.fingerprint, others);
  const auto [code, message] = refusal([&] { taken(dir / "others"); });
  CHECK(code == ExitCode::usage);
  CHECK(message.find("model.layers.3.mlp.up_proj.weight has SHA-256 another") != std::string::npos);
}

TEST_CASE("options that cannot be are refused with the value seen") {
  const test::TempDir dir;
  const auto model = test::TinyModel{.layers = 16}.write(dir / "m");
  fs::remove(model / "model.safetensors");  // before the weights are looked for
  const std::vector<std::pair<SessionOptions, std::string>> cases{
      {{.model = dir / "none"}, "none"},
      {{.model = model, .dtype = "f16"}, "f16"},
      {{.model = model, .threads = -1}, "-1"},
      {{.model = model, .threads = 200000}, "200000"},
      {{.model = model, .depths = "0"}, "0"},
      {{.model = model, .depths = "17"}, "17"},
      {{.model = model, .depths = "4,4"}, "4"},
      {{.model = model, .depths = "a"}, "a"},
      {{.model = model, .chat_template = "jinja"}, "jinja"}};
  for (const auto& [options, seen] : cases) {
    CAPTURE(seen);
    const auto [code, message] = refusal([&] { Session{options}; });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, Catch::Contains(seen));
  }
}

TEST_CASE("a method's options that cannot be are refused before the weights are read") {
  const test::TempDir dir;
  const auto model = test::TinyModel{.layers = 16}.write(dir / "m");
  fs::remove(model / "model.safetensors");
  const std::vector<std::tuple<std::string, ExploreOptions, std::string>> cases{
      {"", {.expand = "wide"}, "wide"},
      {"", {.rows = 0}, "0 rows"},
      {"", {.rows = 2000000000}, "2000000000"},
      {"", {.width = 0}, "width 0"},
      {"", {.no_decs = true}, "--no-decs"},
      {"8", {.devices = "cuda:0"}, "cuda:0"},
      {"8", {.devices = "cpu:0"}, "1 devices"},
      {"", {.devices = "cpu:4096"}, "cpu:4096"},
      {"", {.devices = "cuda:0"}, "cuda:0"},
      {"", {.devices = "cpu:0,"}, "cpu:0"},
      {"", {.devices = "cpu:x"}, "cpu:x"},
      {"", {.single_exit = true}, "--single-exit"},
      {"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", {.expand = "full"}, "16 depths"}};
  for (const auto& [depths, options, seen] : cases) {
    CAPTURE(seen);
    const Method dex = dex_method(options);
    const auto [code, message] =
        refusal([&, &depths = depths] { Session({.model = model, .depths = depths}, dex.check); });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, Catch::Contains(seen));
  }
}

TEST_CASE("methods are found by name, one of them is the reference, and others are named") {
  const Methods methods;
  CHECK(methods.reference().name == "ar");
  CHECK(methods.named("dex", "--method is").explores);
  CHECK_FALSE(methods.named("ar", "--method is").explores);
  const auto [code, message] = refusal([&] { methods.named("fast", "--method is"); });
  CHECK(code == ExitCode::usage);
  CHECK(message == "--method is \"fast\", wanted dex or ar");
  const DepthSet explored({2, 4}, 6);
  CHECK(methods.named("dex", "").depths(explored).text() == explored.text());
  CHECK(methods.reference().depths(explored).num_stages() == 1);
}

TEST_CASE("weights with more layers than the config are refused") {
  const test::TempDir dir;
  const auto five = test::TinyModel{.layers = 5}.write(dir / "five"),
             four = test::TinyModel{.layers = 4}.write(dir / "four");
  std::filesystem::copy_file(four / "config.json", five / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const auto [code, message] = refusal([&] { Session({.model = five}); });
  CHECK(code == ExitCode::io);
  CHECK_THAT(message, Catch::Contains("4 layers"));
}

TEST_CASE("adapters give the depths, and those of another model are refused") {
  const test::TempDir dir;
  const auto path = test::TinyModel{}.write(dir / "m"),
             other = test::TinyModel{.seed = 2}.write(dir / "other");
  const Session bare({.model = path});
  CHECK_FALSE(bare.has_adapters());
  write_adapters(dir / "a", bare.model().config, bare.model().fingerprint);
  const Session adapted({.model = path, .adapters = dir / "a"});
  CHECK(adapted.model().depths.text() == "2,4");
  CHECK(adapted.has_adapters());
  CHECK(Session({.model = path, .adapters = dir / "a", .depths = "1,2,3"})
            .model()
            .depths.num_stages() == 4);
  const auto [code, message] = refusal([&] { Session({.model = other, .adapters = dir / "a"}); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, Catch::Contains(bare.model().fingerprint));
}

}  // namespace dex
