#include "common/model/weight_list.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/model/model.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using namespace dex;
namespace fs = std::filesystem;
using test::TempDir;
using test::TinyModel;

namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

// The model of `tiny` with further tensors of four numbers, and what `change` does.
fs::path model_with(const TempDir& dir, const TinyModel& tiny, const std::vector<std::string>& more,
                    const std::function<void(std::map<std::string, StoredTensor>&)>& change = {}) {
  const fs::path path = tiny.write(dir / "m");
  const WeightFile sound = WeightFile::open(tiny.write(dir / "sound"));
  auto tensors = sound.tensors();
  static const std::vector<float> kFour{1, 2, 3, 4};
  for (const std::string& name : more)
    tensors[name] = {StoredType::f32, {4}, std::as_bytes(std::span(kFour))};
  if (change) change(tensors);
  write_safetensors(path / "model.safetensors", tensors, {});
  return path;
}

Model load(const fs::path& path, StageShare share = {0, 2}) {
  return Model::load(path, DepthSet({2}, 4), Dtype::f32, WeightLayout::rows, share);
}

const TinyModel kModels[] = {{.tied = true},
                             {.tied = false},
                             {.family = "qwen3", .tied = true},
                             {.family = "qwen3", .tied = false}};

}  // namespace

TEST_CASE("the list has exactly the tensors and shapes that a model's file has") {
  const TempDir dir;
  for (const TinyModel& tiny : kModels) {
    const fs::path path = tiny.write(dir / "m");
    const WeightFile weights = WeightFile::open(path);
    TensorShapes shapes;
    for (const auto& [name, tensor] : weights.tensors()) shapes[name] = tensor.shape;
    CHECK(model_tensors(read_model_config(path)) == shapes);
  }
}

TEST_CASE("a tensor that the model does not read is refused by name, whoever has which share") {
  const TempDir dir;
  const std::vector<std::string> names{
      // biases that config.json does not tell of
      "model.layers.0.self_attn.q_proj.bias", "model.layers.3.self_attn.k_proj.bias",
      "model.layers.1.self_attn.o_proj.bias", "model.layers.2.mlp.down_proj.bias", "lm_head.bias",
      "model.norm.bias",
      // further norms
      "model.layers.0.pre_feedforward_layernorm.weight", "model.layers.1.self_attn.q_norm.weight",
      "model.layers.1.self_attn.k_norm.weight", "model.embed_norm.weight",
      // scales of quantised weights
      "model.layers.0.self_attn.k_proj.weight_scale", "model.layers.0.mlp.up_proj.input_scale",
      "model.layers.2.self_attn.q_proj.weight_scale_inv", "model.layers.2.self_attn.k_scale",
      "model.layers.0.mlp.gate_proj.scales", "model.layers.0.mlp.gate_proj.qweight",
      // other parts
      "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.experts.0.up_proj.weight",
      "model.layers.0.self_attn.q_proj.lora_A.weight", "model.embed_positions.weight",
      "score.weight", "visual.patch_embed.weight", "base_model.model.embed_tokens.weight",
      // almost what is harmless
      "model.layers.0.rotary_emb.inv_freq.x", "model.layers.0.self_attn.rotary_emb.inv_freqs",
      "model.layers.x.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq",
      "model.layers.0.mlp.causal_mask", "model.layers.00x.self_attn.masked_bias"};
  for (const std::string& name : names) {
    CAPTURE(name);
    const fs::path path = model_with(dir, {}, {name});
    for (const StageShare share : {StageShare{0, 2}, StageShare{0, 1}, StageShare{1, 2}})
      test::check_refused(ExitCode::io, {"model.safetensors", "does not read", name},
                          [&] { load(path, share); });
  }
}

TEST_CASE("many tensors that are not read are told in one line, a few by name") {
  const TempDir dir;
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i)
    for (const char* part : {"q", "k", "v"})
      names.push_back(fmt::format("model.layers.{}.self_attn.{}_proj.bias", i, part));
  const fs::path path = model_with(dir, {}, names);
  test::check_refused(ExitCode::io, {"layers.0.self_attn.k_proj.bias, model", "and 8 more"},
                      [&] { load(path); });
}

TEST_CASE("layers behind those that config.json names are refused") {
  const TempDir dir;
  for (const char* name :
       {"model.layers.4.input_layernorm.weight", "model.layers.4.eh_proj.weight",
        "model.layers.61.self_attn.q_proj.weight", "model.layers.4.self_attn.rotary_emb.inv_freq"})
    test::check_refused(ExitCode::io, {"after the 4 layers", name},
                        [&] { load(model_with(dir, {}, {name})); });
}

TEST_CASE("buffers that repeat what is known may lie in the file") {
  const TempDir dir;
  const std::vector<std::string> names{"model.layers.0.self_attn.rotary_emb.inv_freq",
                                       "model.layers.3.self_attn.rotary_emb.inv_freq",
                                       "model.layers.1.self_attn.rotary_emb.cos_cached",
                                       "model.layers.1.self_attn.rotary_emb.sin_cached",
                                       "model.rotary_emb.inv_freq",
                                       "model.causal_mask",
                                       "model.layers.2.self_attn.masked_bias",
                                       "model.layers.2.self_attn.causal_mask"};
  for (const TinyModel& tiny : kModels) {
    const fs::path path = model_with(dir, tiny, names);
    CHECK_NOTHROW(load(path));
    const WeightFile weights = WeightFile::open(path);
    const UnreadTensors unread = unread_tensors(read_model_config(path), weights, true);
    CHECK(unread.harmless.size() == names.size());
    CHECK(unread.wrong.empty());
  }
}

TEST_CASE("a head beside a tied embedding must be equal to it") {
  const TempDir dir;
  static std::vector<std::byte> memory;
  const auto with_head = [&](std::ptrdiff_t changed, StoredType type = StoredType::f32) {
    return model_with(dir, {}, {}, [&](auto& tensors) {
      StoredTensor head = tensors.at(kEmbedding);
      memory.assign(head.bytes.begin(), head.bytes.end());
      if (changed >= 0) memory.at(std::size_t(changed)) ^= std::byte{1};
      head.bytes = memory;
      head.type = type;
      tensors["lm_head.weight"] = head;
    });
  };
  const auto size = std::ptrdiff_t(97 * 32 * 4);
  CHECK_NOTHROW(load(with_head(-1)));
  for (const std::ptrdiff_t changed : {std::ptrdiff_t{0}, size / 2, size - 4}) {
    const fs::path path = with_head(changed);
    for (const StageShare share : {StageShare{0, 2}, StageShare{0, 1}})
      test::check_refused(ExitCode::io, {"lm_head.weight", "tie_word_embeddings"},
                          [&] { load(path, share); });
    CHECK_NOTHROW(load(path, {1, 2}));  // has neither end
  }
  test::check_refused(ExitCode::io, {"lm_head.weight"},
                      [&] { load(with_head(-1, StoredType::i32)); });
  test::check_refused(ExitCode::io, {"lm_head.weight"},
                      [&] { load(model_with(dir, {}, {"lm_head.weight"})); });
}

TEST_CASE("a note of quantisation beside the weights is refused, an empty one is not") {
  const TempDir dir;
  const fs::path path = TinyModel{}.write(dir / "m");
  const auto note = [&](const char* text) { dir.write("m/hf_quant_config.json", text); };
  for (const char* text :
       {R"({"quantization": {"quant_algo": "FP8"}})",
        R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})"}) {
    note(text);
    test::check_refused(ExitCode::usage, {"hf_quant_config.json", "FP8"}, [&] { load(path); });
  }
  for (const char* text : {"{}", R"({"quantization": {"quant_algo": null}})"}) {
    note(text);
    CHECK_NOTHROW(load(path));
  }
}

TEST_CASE("public exports with tensors that are not read are refused, whole ones are taken") {
  const auto cases = test::shared("cases/new");
  if (!cases) return;
  const auto depths = DepthSet({2}, 4);
  const auto load_whole = [&](const fs::path& path) {
    Model::load(path, depths, Dtype::bf16, WeightLayout::rows);
  };
  test::check_refused(ExitCode::io, {"k_proj.bias", "and 8 more"},
                      [&] { load_whole(*cases / "N-M1/bias-unsaid"); });
  test::check_refused(ExitCode::usage, {"attention_bias"},
                      [&] { load_whole(*cases / "N-M1/bias-said"); });
  test::check_refused(ExitCode::usage, {"FP8"},
                      [&] { load_whole(*cases / "N-M2/scales-in-file"); });
  const TempDir dir;
  fs::copy(*cases / "N-M2/scales-in-file", dir / "scales");
  fs::remove(dir / "scales/hf_quant_config.json");
  test::check_refused(ExitCode::io, {"k_proj.input_scale"}, [&] { load_whole(dir / "scales"); });
  for (const char* whole : {"base-llama", "base-qwen3"}) CHECK_NOTHROW(load_whole(*cases / whole));
}
