// The forward pass against a Llama that is written a second time here: in float64, one line for a
// formula of its paper, on weights that are drawn here and read by our loader.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "common/base/file.h"
#include "common/base/safetensors.h"
#include "common/model/model.h"
#include "common/model/tensors.h"
#include "tests/support/read_all.h"
#include "tests/support/temp_dir.h"

namespace dex {
namespace {

using nlohmann::json;

struct Shape {
  std::string family = "llama";
  int heads = 6, kv_heads = 2, head_dim = 16;
  bool tied = false;
  double theta = 10000, eps = 1e-5;
  json scaling = nullptr;  // rope_scaling
  int layers = 3, hidden = 40, intermediate = 56, vocab = 101;
};

const json kLinear = {{"rope_type", "linear"}, {"factor", 4.0}};
// Of the eight frequencies one is kept, one lies between, six are divided.
const json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 64}};

const std::map<std::string, Shape> kShapes{
    {"as many keys as queries, tied head", {.kv_heads = 6, .tied = true}},
    {"grouped queries, head of its own", {.heads = 5, .kv_heads = 1, .head_dim = 8}},
    {"linear rotary scaling", {.tied = true, .theta = 500000, .scaling = kLinear}},
    {"llama3 rotary scaling", {.theta = 500000, .eps = 1e-6, .scaling = kLlama3}},
    {"norms of queries and keys", {.family = "qwen3", .head_dim = 10, .theta = 1e6, .eps = 1e-6}},
    {"the same with a tied head",
     {.family = "qwen3", .heads = 4, .kv_heads = 4, .tied = true, .scaling = kLlama3}}};

using Weights = std::map<std::string, at::Tensor>;

Weights drawn(const Shape& s) {
  const auto generator = at::detail::createCPUGenerator(11);
  Weights w;
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in, double size) {
    w[name] = at::randn({out, in}, generator) * (size / std::sqrt(double(in)));
  };
  const auto norm = [&](const std::string& name, std::int64_t size) {
    w[name] = 1 + 0.2 * at::randn({size}, generator);
  };
  matrix("model.embed_tokens.weight", s.vocab, s.hidden, 3);
  if (!s.tied) matrix("lm_head.weight", s.vocab, s.hidden, 3);
  norm("model.norm.weight", s.hidden);
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    norm(at + "input_layernorm.weight", s.hidden);
    norm(at + "post_attention_layernorm.weight", s.hidden);
    matrix(at + "self_attn.q_proj.weight", s.heads * s.head_dim, s.hidden, 1.5);
    matrix(at + "self_attn.k_proj.weight", s.kv_heads * s.head_dim, s.hidden, 1.5);
    matrix(at + "self_attn.v_proj.weight", s.kv_heads * s.head_dim, s.hidden, 1);
    matrix(at + "self_attn.o_proj.weight", s.hidden, s.heads * s.head_dim, 1);
    if (s.family == "qwen3") {
      norm(at + "self_attn.q_norm.weight", s.head_dim);
      norm(at + "self_attn.k_norm.weight", s.head_dim);
    }
    matrix(at + "mlp.gate_proj.weight", s.intermediate, s.hidden, 1.5);
    matrix(at + "mlp.up_proj.weight", s.intermediate, s.hidden, 1);
    matrix(at + "mlp.down_proj.weight", s.hidden, s.intermediate, 1);
  }
  return w;
}

std::filesystem::path write(const std::filesystem::path& dir, const Shape& s, const Weights& w) {
  make_directory(dir);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, tensor] : w) tensors[name] = stored_view(tensor);
  write_safetensors(dir / "model.safetensors", tensors, {{"format", "pt"}});
  const json config = {
      {"model_type", s.family},
      {"architectures", {s.family == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
      {"hidden_size", s.hidden},
      {"intermediate_size", s.intermediate},
      {"num_hidden_layers", s.layers},
      {"num_attention_heads", s.heads},
      {"num_key_value_heads", s.kv_heads},
      {"head_dim", s.head_dim},
      {"vocab_size", s.vocab},
      {"max_position_embeddings", 256},
      {"hidden_act", "silu"},
      {"rms_norm_eps", s.eps},
      {"rope_theta", s.theta},
      {"rope_scaling", s.scaling},
      {"tie_word_embeddings", s.tied}};
  write_file(dir / "config.json", config.dump());
  return dir;
}

// Parts that a reference may be without, to see that the comparison would notice.
struct Without {
  bool rotation = false, scaling = false, qk_norm = false, groups = false, order = false;
};

class Reference {
 public:
  Reference(const Shape& shape, const Weights& weights, Without without = {})
      : s_(shape), without_(without) {
    for (const auto& [name, tensor] : weights) w_[name] = tensor.to(at::kDouble);
  }

  // (ids, vocab) f64
  at::Tensor logits(const std::vector<Token>& ids) const {
    const at::Tensor index = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()));
    at::Tensor x = w_.at("model.embed_tokens.weight").index_select(0, index);
    for (int layer = 0; layer < s_.layers; ++layer) {
      const std::string at = fmt::format("model.layers.{}.", layer);
      x = x + attention(rms_norm(x, at + "input_layernorm"), at + "self_attn.");
      x = x + feed_forward(rms_norm(x, at + "post_attention_layernorm"), at + "mlp.");
    }
    return times(rms_norm(x, "model.norm"), s_.tied ? "model.embed_tokens" : "lm_head");
  }

 private:
  at::Tensor times(const at::Tensor& x, const std::string& name) const {
    return x.matmul(w_.at(name + ".weight").t());
  }

  at::Tensor rms_norm(const at::Tensor& x, const std::string& name) const {
    return x / (x.square().mean(-1, true) + s_.eps).sqrt() * w_.at(name + ".weight");
  }

  at::Tensor feed_forward(const at::Tensor& x, const std::string& at) const {
    const at::Tensor gate = times(x, at + "gate_proj");
    return times(gate / (1 + (-gate).exp()) * times(x, at + "up_proj"), at + "down_proj");
  }

  at::Tensor attention(const at::Tensor& x, const std::string& at) const {
    const std::int64_t length = x.size(0);
    const at::Tensor q = heads_of(x, at + "q", s_.heads), k = heads_of(x, at + "k", s_.kv_heads),
                     v = times(x, at + "v_proj").view({length, s_.kv_heads, s_.head_dim});
    std::vector<at::Tensor> heads;
    for (int h = 0; h < s_.heads; ++h) {
      const int of = without_.groups ? h % s_.kv_heads : h / (s_.heads / s_.kv_heads);
      at::Tensor scores = q.select(1, h).matmul(k.select(1, of).t()) / std::sqrt(s_.head_dim);
      const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
      if (!without_.order) scores = scores.masked_fill(later, -INFINITY);
      const at::Tensor weights = (scores - std::get<0>(scores.max(-1, true))).exp();
      heads.push_back((weights / weights.sum(-1, true)).matmul(v.select(1, of)));
    }
    return times(at::cat(heads, -1), at + "o_proj");
  }

  at::Tensor heads_of(const at::Tensor& x, const std::string& name, int count) const {
    at::Tensor y = times(x, name + "_proj").view({x.size(0), count, s_.head_dim});
    if (s_.family == "qwen3" && !without_.qk_norm) y = rms_norm(y, name + "_norm");
    return without_.rotation ? y : rotated(y);
  }

  // Halves as in Hugging Face's weights: dimension i turns with i + head_dim / 2.
  at::Tensor rotated(const at::Tensor& y) const {
    std::vector<double> frequencies;
    for (int i = 0; 2 * i < s_.head_dim; ++i) frequencies.push_back(frequency(i));
    const at::Tensor angles =
        at::arange(y.size(0), at::kDouble).view({-1, 1, 1}) * at::tensor(frequencies, at::kDouble);
    const auto halves = y.chunk(2, -1);
    const at::Tensor &a = halves[0], &b = halves[1], cos = angles.cos(), sin = angles.sin();
    return at::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  }

  double frequency(int i) const {
    const double plain = std::pow(s_.theta, -2.0 * i / s_.head_dim);
    if (s_.scaling.is_null() || without_.scaling) return plain;
    const double factor = s_.scaling["factor"];
    if (s_.scaling["rope_type"] == "linear") return plain / factor;
    const double original = s_.scaling["original_max_position_embeddings"],
                 low = s_.scaling["low_freq_factor"], high = s_.scaling["high_freq_factor"];
    const double turns = original * plain / (2 * std::numbers::pi);
    const double share = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return share * plain + (1 - share) * plain / factor;
  }

  Shape s_;
  Without without_;
  Weights w_;
};

double distance(const at::Tensor& seen, const at::Tensor& wanted) {
  return ((seen - wanted).norm() / wanted.norm()).item<double>();
}

constexpr std::size_t kPrompt = 9, kIds = 64;

// A prompt and the reference's greedy ids after it; `least_gap`: how sure it was of them.
std::vector<Token> greedy_text(const Reference& reference, double& least_gap) {
  std::vector<Token> ids;
  for (std::size_t i = 0; i < kPrompt; ++i) ids.push_back(Token((17 * i * i + 5 * i + 3) % 101));
  while (ids.size() < kPrompt + kIds) {
    const auto [values, best] = reference.logits(ids)[std::int64_t(ids.size()) - 1].topk(2);
    least_gap = std::min(least_gap, (values[0] - values[1]).item<double>());
    ids.push_back(Token(best[0].item<std::int64_t>()));
  }
  return ids;
}

Model load(const std::filesystem::path& path, Dtype dtype, WeightLayout layout) {
  return Model::load(path, DepthSet({1}, 3), dtype, layout);
}

}  // namespace

TEST_CASE("the models of every family give a float64 reference's logits and its 64 greedy ids") {
  const test::TempDir dir;
  for (const auto& [name, shape] : kShapes) {
    CAPTURE(name);
    const Weights weights = drawn(shape);
    const auto path = write(dir / name, shape, weights);
    const Reference reference(shape, weights);
    double least_gap = INFINITY;
    const std::vector<Token> text = greedy_text(reference, least_gap);
    CAPTURE(least_gap);
    REQUIRE(least_gap > 1e-3);  // far above what float32 may change
    const at::Tensor wanted = reference.logits(text);

    // float32: one row after the other, as a decoder runs; then a pass of training
    const Model model = load(path, Dtype::f32, WeightLayout::panels);
    const at::Tensor logits = test::all_logits(model, text, 1, 1).to(at::kDouble);
    CHECK(distance(logits, wanted) < 2e-6);
    CHECK((logits - wanted).abs().max().item<double>() < 1e-4);
    const at::Tensor best = logits.argmax(-1);
    for (std::size_t i = kPrompt; i < text.size(); ++i)
      CHECK(best[std::int64_t(i) - 1].item<std::int64_t>() == text[i]);
    const Model rows = load(path, Dtype::f32, WeightLayout::rows);
    at::Tensor x = rows.embedding->rows(text);
    for (const Stage& stage : rows.stages) x = stage.forward_causal(x);
    x = at::linear(rows.head->norm(x), rows.head->matrix().plain());
    CHECK(distance(x.to(at::kDouble), wanted) < 2e-6);

    const auto of_type = [&](Dtype dtype) {
      const Model narrow = load(path, dtype, WeightLayout::panels);
      return distance(test::all_logits(narrow, text, 16, 2).to(at::kDouble), wanted);
    };
    CHECK(of_type(Dtype::bf16) < 0.03);
    CHECK(of_type(Dtype::i8) < 0.06);

    // what would be seen of a part that is missing or wrong
    const auto seen_without = [&](const Without& part) {
      return distance(Reference(shape, weights, part).logits(text), wanted);
    };
    CHECK(seen_without({.rotation = true}) > 0.05);
    CHECK(seen_without({.order = true}) > 0.05);
    if (!shape.scaling.is_null()) CHECK(seen_without({.scaling = true}) > 0.02);
    if (shape.family == "qwen3") CHECK(seen_without({.qk_norm = true}) > 0.05);
    if (shape.kv_heads > 1 && shape.kv_heads < shape.heads)
      CHECK(seen_without({.groups = true}) > 0.05);
  }
}

}  // namespace dex
