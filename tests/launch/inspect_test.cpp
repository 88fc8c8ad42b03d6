#include <algorithm>
#include <catch2/catch.hpp>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/base/safetensors.h"
#include "data/shard_writer.h"
#include "launch/inspect/inspection.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"
#include "train/loop/train_loop.h"

namespace fs = std::filesystem;
using dex::ExitCode;
using dex::inspect;
using dex::Inspection;
using dex::test::check_refused;
using dex::test::TempDir;

namespace {

void check_text(const Inspection& found, const std::vector<std::string>& words) {
  INFO(found.text);
  for (const std::string& word : words) {
    INFO("wanted in the text: " << word);
    CHECK(found.text.find(word) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("a model directory is told with sizes, parameters, rope, memory and tensors") {
  const TempDir dir;
  const dex::test::TinyModel tiny{.layers = 3,
                                  .hidden = 32,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .intermediate = 48,
                                  .vocab = 97};
  tiny.write(dir / "m");
  const Inspection found = inspect(dir / "m");
  CHECK(found.code == ExitCode::done);
  CHECK(found.facts["kind"] == "model");
  CHECK(found.facts["family"] == "llama");
  // Per layer: q, o 32x32; k, v 16x32; gate, up, down 48x32; two norms. Then a tied embedding and
  // the last norm.
  const int parameters = 3 * (2 * 1024 + 2 * 512 + 3 * 1536 + 64) + 97 * 32 + 32;
  CHECK(found.facts["parameters"] == parameters);
  CHECK(found.facts["memory"]["f32"]["weights"] == 4 * parameters);
  CHECK(found.facts["memory"]["bf16"]["cache_per_token"] == 2 * 2 * 3 * 2 * 8);
  CHECK(found.facts["weights"]["elements"] == parameters);
  CHECK(found.facts["inverse_frequencies"].size() == 4);
  CHECK(found.facts["inverse_frequencies"][0] == 1.0);
  CHECK(found.facts["path"] == (dir / "m").string());
  check_text(found, {"model.layers.*.self_attn.q_proj.weight", "[32, 32]",
                     "4, 2 for keys and values, of 8", "tied", "none: ids in, ids out",
                     "no scaling", "26,368"});
}

TEST_CASE("tensors that do not fit the config are told and not accepted") {
  const TempDir dir;
  dex::test::TinyModel tiny;
  tiny.write(dir / "m");
  auto config = nlohmann::json::parse(dex::read_file(dir / "m" / "config.json"));
  config["intermediate_size"] = 40;
  config["num_hidden_layers"] = 5;
  dex::write_file(dir / "m" / "config.json", config.dump());
  const Inspection found = inspect(dir / "m");
  CHECK(found.code == ExitCode::io);
  CHECK(found.facts["problems"].size() == 11);  // ten and how many more
  check_text(found, {"model.layers.0.mlp.down_proj.weight is [32, 48], config.json wants [32, 40]",
                     "tensors more do not fit"});
}

TEST_CASE("a config alone is told with what it takes to hold the model") {
  const auto configs = dex::test::shared("data/hf-configs");
  if (!configs) return;
  const Inspection found = inspect(*configs / "llama3.1-8b" / "config.instruct.json");
  CHECK(found.code == ExitCode::done);
  CHECK(found.facts["parameters"] == 8'030'261'248);  // as published
  CHECK(found.facts["rope"]["type"] == "llama3");
  CHECK(found.facts["stop_ids"] == nlohmann::json({128001, 128008, 128009}));
  check_text(found, {"8,030,261,248",
                     "theta 500000, llama3, factor 8, low 1, high 4, original positions 8192",
                     "1 .. 3.06892", "128.0 KiB a token"});  // 2 x 32 x 8 x 128 numbers of 2 bytes
  CHECK(inspect(*configs / "llama3.2-1b").facts["parameters"] == 1'235'814'400);
  CHECK(inspect(*configs / "smollm2-135m" / "config.transformers5.json").facts["parameters"] ==
        134'515'008);
  CHECK(inspect(*configs / "qwen3" / "Qwen3-4B.config.json").facts["parameters"] == 4'022'468'096);
}

TEST_CASE("the small Qwen3 model is told whole, with its tokenizer and stop ids") {
  const auto model = dex::test::shared("cases/d-m1");
  if (!model) return;
  const Inspection found = inspect(*model);
  CHECK(found.code == ExitCode::done);
  CHECK(found.facts["tokenizer"]["size"] == 300);
  CHECK(found.facts["tokenizer"]["kind"] == "byte-level BPE");
  CHECK(found.facts["qk_norm"] == true);
  check_text(found, {"20 rows of the head stand for no id", "<|im_end|>", "BF16"});
}

TEST_CASE("safetensors, JSON lines and HDF5 files are told by their content") {
  const TempDir dir;
  const std::vector<float> values(6, 1.0f);
  const dex::StoredTensor tensor{dex::StoredType::f32, {2, 3}, std::as_bytes(std::span(values))};
  dex::write_safetensors(dir / "x.safetensors",
                         {{"layers.0.w", tensor}, {"layers.1.w", tensor}, {"b", tensor}},
                         {{"by", "me"}});
  const Inspection weights = inspect(dir / "x.safetensors");
  CHECK(weights.facts["tensors"] == 3);
  CHECK(weights.facts["elements"] == 18);
  CHECK(weights.facts["by_type"]["F32"]["bytes"] == 72);
  check_text(weights, {"layers.*.w F32  [2, 3]     2       12 48 bytes", "by"});

  const Inspection lines =
      inspect(dir.write("x.jsonl", "{\"a\":1,\"b\":2}\n\n{\"a\":3}\nnot json\n[1]\n{\"a\":4}"));
  CHECK(lines.code == ExitCode::bad_rows);
  CHECK(lines.facts["lines"] == 6);
  CHECK(lines.facts["objects"] == 3);
  CHECK(lines.facts["blank"] == 1);
  CHECK(lines.facts["bad_lines"] == nlohmann::json({4, 5}));
  CHECK(lines.facts["fields"] == nlohmann::json({{"a", 3}, {"b", 1}}));
  CHECK(inspect(dir.write("empty.jsonl", "")).facts["lines"] == 0);

  dex::H5Writer writer(dir / "x.h5");
  const std::vector<std::uint32_t> ids{1, 2, 3};
  writer.append("tokens", ids);
  writer.attribute("format", std::string("some table 1"));
  writer.close();
  const Inspection table = inspect(dir / "x.h5");
  CHECK(table.facts["format"] == "some table 1");
  CHECK(table.facts["shapes"]["tokens"] == nlohmann::json({3}));
}

TEST_CASE("a hole in one shard is seen when that shard is looked at") {
  const TempDir dir;
  fs::create_directory(dir / "data");
  {
    dex::ShardWriter writer(dir / "data", 100);
    for (int i = 0; i < 400; ++i)
      writer.add("train",
                 {std::vector<dex::Token>(100, 1 + i % 90), std::vector<std::uint8_t>(100, 1)});
    writer.finish({"tokenizer", "chatml", "template", "source", 100, 128, {}}, {}, "");
  }
  const fs::path shard = dir / "data" / "train-00000.h5";
  const std::string whole = dex::read_file(shard);
  CHECK(inspect(shard).facts["shapes"]["tokens"] == nlohmann::json({40000}));
  // A whole block as a disk may lose it: bytes of a chunk of ids, and of its checksum.
  const std::vector<std::uint32_t> second(100, 2);
  const std::size_t place =
      whole.find(std::string(reinterpret_cast<const char*>(second.data()), 4 * 100));
  REQUIRE(place != std::string::npos);
  std::string holed = whole;
  std::fill_n(holed.begin() + std::ptrdiff_t(place - 400), 16384 * 4 + 4, '\0');
  fs::remove(shard);
  dir.write("data/train-00000.h5", holed);
  check_refused(ExitCode::io, {shard.string(), "altered"}, [&] { inspect(shard); });
  // Away from the manifest the checksums tell of what is not all zeros.
  holed[place + 1000] = 'x';
  check_refused(ExitCode::io, {"alone.h5"}, [&] { inspect(dir.write("alone.h5", holed)); });
}

TEST_CASE("weights that a model does not read are problems of it, buffers are not") {
  const TempDir dir;
  const fs::path path = dex::test::TinyModel{}.write(dir / "m");
  const auto with = [&](const std::string& name) {
    const dex::WeightFile weights =
        dex::WeightFile::open(dex::test::TinyModel{}.write(dir / "sound"));
    auto tensors = weights.tensors();
    tensors[name] = tensors.at("model.norm.weight");
    dex::write_safetensors(path / "model.safetensors", tensors, {});
    return inspect(path);
  };
  const Inspection wrong = with("model.layers.0.self_attn.q_proj.bias");
  CHECK(wrong.code == ExitCode::io);
  check_text(wrong, {"PROBLEM", "does not read", "q_proj.bias"});
  const Inspection harmless = with("model.layers.0.self_attn.rotary_emb.inv_freq");
  CHECK(harmless.code == ExitCode::done);
  CHECK(harmless.facts["unused"].size() == 1);
}

TEST_CASE("adapters and checkpoints are told by the directory or a file of theirs") {
  const TempDir dir;
  const dex::test::AdapterTensors adapters;
  dex::write_adapter_file(dir / "a", adapters.config, adapters.stored);
  for (const fs::path& path : {dir / "a", dir / "a" / "adapter_config.json"}) {
    const Inspection found = inspect(path);
    CHECK(found.facts["kind"] == "adapters");
    CHECK(found.facts["adapter_config"]["depths"] == nlohmann::json({1, 3}));
    check_text(found, {"depths"});
  }
  dex::save_checkpoint(dir / "run" / "checkpoints", 12, 1, [](const fs::path& temporary) {
    dex::write_file(temporary / "x", "12345");
  });
  const Inspection checkpoint = inspect(dir / "run" / "checkpoints" / "step-12");
  CHECK(checkpoint.facts["kind"] == "checkpoint");
  CHECK(checkpoint.facts["MANIFEST"]["step"] == 12);
  CHECK(inspect(dir / "run").facts["kind"] == "run");
  CHECK(inspect(dir / "run" / "checkpoints").facts["kind"] == "run");
  dex::write_file(dir / "run" / "checkpoints" / "step-12" / "x", "12346");
  check_refused(ExitCode::io, {"step-12"},
                [&] { inspect(dir / "run" / "checkpoints" / "step-12"); });
}

TEST_CASE("paths that are missing or of no known kind are refused with what was seen and wanted") {
  const TempDir dir;
  check_refused(ExitCode::usage, {"absent", "no such"}, [&] { inspect(dir / "absent"); });
  check_refused(ExitCode::usage, {dir.path().string(), "holds nothing", "wanted a model directory"},
                [&] { inspect(dir.path()); });
  const auto refuse = [&](ExitCode code, const std::string& name, const std::string& bytes,
                          std::vector<std::string> words) {
    const fs::path path = dir.write(name, bytes);
    words.push_back(path.string());
    check_refused(code, words, [&] { inspect(path); });
  };
  refuse(ExitCode::usage, "a.txt", "hello", {"5 bytes of nothing known", "wanted"});
  refuse(ExitCode::usage, "empty", "", {"0 bytes of nothing known"});
  refuse(ExitCode::usage, "chats.json", "[{\"id\": 1}]", {"dex prepare"});
  refuse(ExitCode::usage, "other.json", "{\"a\": 1}", {"a JSON object of nothing known"});
  refuse(ExitCode::io, "cut.json", "{\"a\": ", {"not JSON"});
  refuse(ExitCode::io, "pointer.model", "version https://git-lfs.github.com/spec/v1\noid",
         {"git-lfs pointer"});
  refuse(ExitCode::io, "x.gguf", "GGUF....", {"GGUF"});
  refuse(ExitCode::io, "x.safetensors", "<!doctype html>", {"web page"});
  refuse(ExitCode::io, "x.h5", "\x89HDF\r\n\x1a\n", {});
  check_refused(ExitCode::usage, {"a.txt", "and 1 more"}, [&] { inspect(dir.path()); });
  refuse(ExitCode::io, "odd/MANIFEST.json", "{\"format\": \"other\"}", {"format is \"other\""});
}

TEST_CASE("columns are aligned, numbers to the right") {
  CHECK(dex::columns({{"name", "count"}, {"a", "12"}, {"longer", "x"}}) ==
        "  name   count\n  a      12\n  longer x\n");
  CHECK(dex::columns({{"name", "type", "count"}, {"a", "F32", "1,024"}, {"bb", "BF16", "7"}}) ==
        "  name type count\n  a    F32  1,024\n  bb   BF16     7\n");
  CHECK(dex::columns({}).empty());
  CHECK(dex::grouped(0) == "0");
  CHECK(dex::grouped(999) == "999");
  CHECK(dex::grouped(1000) == "1,000");
  CHECK(dex::grouped(134515008) == "134,515,008");
  CHECK(dex::bytes_text(1023) == "1023 bytes");
  CHECK(dex::bytes_text(1024) == "1.0 KiB");
  CHECK(dex::bytes_text(269030016) == "256.6 MiB");
}

TEST_CASE(
    "a training run is told with options, first and last step, evaluations, checkpoints and "
    "adapters") {
  const TempDir dir;
  const auto path = dex::test::TinyModel{}.write(dir / "m");
  const dex::Model model = dex::Model::load(path, dex::DepthSet({1, 3}, 4), dex::Dtype::f32,
                                            dex::WeightLayout::rows, dex::DigestsOf::what_is_read);
  const auto samples = dex::test::tiny_samples(9, 97, 2);
  const dex::TrainOptions options{.out = dir / "run",
                                  .depths = "1,3",
                                  .steps = 4,
                                  .batch_size = 2,
                                  .learning_rate = 0.0125,
                                  .dtype = "f32",
                                  .save_every = 1,
                                  .eval_every = 2,
                                  .keep = 2};
  const dex::TrainingData data{.size = samples.size(),
                               .sample = [&](std::uint64_t index) { return samples.at(index); },
                               .held_out = dex::test::tiny_samples(3, 97, 3),
                               .digest = "samples"};
  const auto outcome = dex::TrainLoop(options, model, data, [] { return false; }).run();
  const Inspection found = inspect(dir / "run");
  CHECK(found.code == ExitCode::done);
  CHECK(found.facts["kind"] == "run");
  CHECK(found.facts["saved_step"] == 4);
  CHECK(found.facts["options"]["learning_rate"] == 0.0125);
  CHECK(found.facts["first"]["step"] == 1);
  CHECK(found.facts["last"]["loss"] == outcome.summary["loss"]);
  CHECK(found.facts["evaluations"].size() == 4);  // none and start at step 0, trained at 2 and 4
  CHECK(found.facts["evaluations"].back()["scores"] == outcome.summary["evaluation"]["trained"]);
  CHECK(found.facts["best"]["step"] == outcome.summary["best_step"]);
  CHECK(found.facts["adapters"]["depths"] == nlohmann::json({1, 3}));
  check_text(found, {"learning_rate", "0.0125", "loss @1", "agree @3", "rounds/token", "step-4",
                     "whole", "DECS hops on held-out text"});

  dex::write_file(dir / "run" / "checkpoints" / "step-4" / "state.json", "{}");
  const Inspection damaged = inspect(dir / "run");
  CHECK(damaged.code == ExitCode::io);
  CHECK(damaged.facts["saved_step"] == 3);
  check_text(damaged, {"DAMAGED", "state.json"});
}

TEST_CASE("a training run that has just begun is told as far as it came") {
  const TempDir dir;
  dex::make_directory(dir / "run");
  dir.write("run/metrics.jsonl",
            "{\"step\":1,\"loss\":2.5,\"loss_by_depth\":{\"8\":2,\"16\":3}}\n{\"step\":2,\"lo");
  const Inspection found = inspect(dir / "run");
  CHECK(found.code == ExitCode::done);
  CHECK(found.facts["last"]["step"] == 1);
  check_text(found, {"2.5000", "no whole checkpoint", "none yet"});
}
