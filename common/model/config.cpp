#include "common/model/config.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <set>

#include "common/base/error.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Fields of one JSON object, with the words for what is wrong with them. Null counts as absent, as
// in transformers.
class Fields {
 public:
  Fields(const json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const json* find(const std::string& name) const {
    const auto field = object_.find(name);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& wanted) const {
    const json* value = find(name);
    fail(ExitCode::usage, "{}: {} is {}; wanted {}", place_, name,
         value ? shown(*value) : "missing", wanted);
  }

  std::optional<std::int64_t> integer(const std::string& name, std::int64_t least,
                                      std::int64_t most) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    // An unsigned number over the signed range would turn negative in get().
    const bool whole =
        value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(most));
    if (!whole || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
      refuse(name, fmt::format("a whole number in {}..{}", least, most));
    return value->get<std::int64_t>();
  }

  std::int64_t size(const std::string& name) const {  // a required one
    const auto value = integer(name, 1, std::numeric_limits<std::int32_t>::max());
    if (!value) refuse(name, "a whole number");
    return *value;
  }

  std::optional<double> positive(const std::string& name) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
      refuse(name, "a number over 0");
    return value->get<double>();
  }

  double required_positive(const std::string& name, const std::string& owner) const {
    const auto value = positive(name);
    if (!value) refuse(name, "a number over 0, since " + owner + " needs it");
    return *value;
  }

  std::optional<std::string> text(const std::string& name) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) refuse(name, "a text");
    return value->get<std::string>();
  }

  bool flag(const std::string& name) const {
    const json* value = find(name);
    if (!value) return false;
    if (!value->is_boolean()) refuse(name, "true or false");
    return value->get<bool>();
  }

  std::optional<Fields> object(const std::string& name) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_object()) refuse(name, "an object or null");
    return Fields(*value, place_ + ": " + name);
  }

  bool empty() const { return object_.empty(); }
  const std::string& place() const { return place_; }

  static std::string shown(const json& value) {
    constexpr std::size_t kMax = 80;
    const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    return text.size() <= kMax ? text : text.substr(0, kMax) + "...";
  }

 private:
  const json& object_;
  std::string place_;
};

// One of the two objects that say how positions are turned into angles.
struct RopeClaim {
  std::string where;
  RopeConfig rope;
  std::optional<double> theta;
};

std::string rope_type_of(const Fields& fields) {
  const auto newer = fields.text("rope_type"), older = fields.text("type");
  if (newer && older && *newer != *older)
    fields.refuse("type", "the same as rope_type, \"" + *newer + "\"");
  const std::string type = newer ? *newer : older.value_or("default");
  if (type != "default" && type != "linear" && type != "llama3")
    fields.refuse(newer ? "rope_type" : "type", "\"default\", \"linear\" or \"llama3\"");
  if (type == "default" && fields.find("factor") && fields.positive("factor") != 1.0)
    fields.refuse("factor", "1 or a rope_type that scales");
  return type;
}

RopeClaim read_rope_object(const Fields& fields, const std::string& where) {
  RopeClaim claim{where, {}, fields.positive("rope_theta")};
  RopeConfig& rope = claim.rope;
  rope.type = rope_type_of(fields);
  if (fields.positive("partial_rotary_factor").value_or(1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "1 or none");
  if (rope.type != "default") rope.factor = fields.required_positive("factor", rope.type);
  if (rope.type == "llama3") {
    rope.low_freq_factor = fields.required_positive("low_freq_factor", rope.type);
    rope.high_freq_factor = fields.required_positive("high_freq_factor", rope.type);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      fields.refuse("high_freq_factor", "more than low_freq_factor");
    const auto original = fields.integer("original_max_position_embeddings", 1,
                                         std::numeric_limits<std::int32_t>::max());
    if (!original)
      fields.refuse("original_max_position_embeddings", "a whole number, since llama3 needs it");
    rope.original_max_positions = *original;
  }
  return claim;
}

bool same_scaling(const RopeConfig& a, const RopeConfig& b) {
  return a.type == b.type && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_positions == b.original_max_positions;
}

// Every place that states the rope is read, and they have to agree: a reader that picks one of two
// is wrong without a word in half of the cases.
RopeConfig read_rope(const Fields& fields) {
  std::vector<RopeClaim> claims;
  for (const char* name : {"rope_parameters", "rope_scaling"})
    if (const auto object = fields.object(name); object && !object->empty())
      claims.push_back(read_rope_object(*object, name));
  if (claims.size() == 2 && !same_scaling(claims[0].rope, claims[1].rope))
    fields.refuse("rope_scaling", "the same as in rope_parameters, " +
                                      Fields::shown(*fields.find("rope_parameters")));

  RopeConfig rope = claims.empty() ? RopeConfig{} : claims.front().rope;
  RopeClaim top;
  top.where = "the top level";
  top.theta = fields.positive("rope_theta");
  claims.push_back(std::move(top));
  std::optional<double> theta;
  std::string from;
  for (const RopeClaim& claim : claims) {
    if (!claim.theta) continue;
    require(!theta || *theta == *claim.theta, ExitCode::usage,
            "{}: rope_theta is {} in {} and {} in {}; wanted one value", fields.place(),
            theta.value_or(0), from, *claim.theta, claim.where);
    theta = claim.theta;
    from = claim.where;
  }
  if (!theta)
    spdlog::info("{}: no rope_theta; using {}, the default of the format", fields.place(),
                 rope.theta);
  rope.theta = theta.value_or(rope.theta);
  return rope;
}

// What these families may state but this program does not compute.
void refuse_unsupported(const Fields& fields, const std::string& architecture) {
  if (const json* names = fields.find("architectures"))
    if (!names->is_array() || std::find(names->begin(), names->end(), architecture) == names->end())
      fields.refuse("architectures", architecture);
  if (fields.text("hidden_act").value_or("silu") != "silu") fields.refuse("hidden_act", "\"silu\"");
  for (const char* name : {"attention_bias", "mlp_bias", "rope_interleaved", "use_sliding_window"})
    if (fields.flag(name)) fields.refuse(name, "false");
  for (const char* name : {"quantization", "quantization_config"})
    if (fields.find(name)) fields.refuse(name, "none: quantised weights are not read");
  if (fields.positive("partial_rotary_factor").value_or(1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "1 or none");
  if (const json* types = fields.find("layer_types"))
    for (const json& type : *types)
      if (type != "full_attention")
        fields.refuse("layer_types", "\"full_attention\" for every layer");
}

int read_head_dim(const Fields& fields, const ModelConfig& config) {
  constexpr int kMaxHeadDim = 1024;
  auto head_dim = fields.integer("head_dim", 2, kMaxHeadDim);
  if (!head_dim) {
    if (config.hidden_size % config.num_heads != 0)
      fields.refuse("num_attention_heads",
                    fmt::format("a divisor of hidden_size, {}, or a head_dim", config.hidden_size));
    head_dim = config.hidden_size / config.num_heads;
  }
  require(*head_dim % 2 == 0 && *head_dim <= kMaxHeadDim, ExitCode::usage,
          "{}: head_dim is {}; wanted an even number up to {}", fields.place(), *head_dim,
          kMaxHeadDim);
  return int(*head_dim);
}

ModelConfig read_config_json(const Fields& fields) {
  ModelConfig config;
  config.family = fields.text("model_type").value_or("");
  if (config.family != "llama" && config.family != "qwen3")
    fields.refuse("model_type", "\"llama\" or \"qwen3\"");
  const bool qwen3 = config.family == "qwen3";
  refuse_unsupported(fields, qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM");

  config.hidden_size = fields.size("hidden_size");
  config.intermediate_size = fields.size("intermediate_size");
  config.vocab_size = fields.size("vocab_size");
  config.num_layers = int(fields.size("num_hidden_layers"));
  config.num_heads = int(fields.size("num_attention_heads"));
  config.num_kv_heads =
      int(fields.integer("num_key_value_heads", 1, config.num_heads).value_or(config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads, {}", config.num_heads));
  config.head_dim = read_head_dim(fields, config);
  config.max_positions = fields.size("max_position_embeddings");
  config.rms_norm_eps = float(fields.required_positive("rms_norm_eps", "the model"));
  config.rope = read_rope(fields);
  config.tied_head = fields.flag("tie_word_embeddings");
  config.qk_norm = qwen3;
  return config;
}

void add_stop_ids(const Fields& fields, std::int64_t vocab_size, std::set<Token>& stop_ids) {
  const json* value = fields.find("eos_token_id");
  if (!value) return;
  const auto refuse = [&] {
    fields.refuse("eos_token_id", fmt::format("ids in 0..{}", vocab_size - 1));
  };
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= std::uint64_t(vocab_size)) refuse();
    stop_ids.insert(id.get<Token>());
  }
}

// "eos_token" is a text or an object with the text under "content".
void add_stop_text(const Fields& fields, std::vector<std::string>& stop_texts) {
  const json* value = fields.find("eos_token");
  if (!value) return;
  const json* text =
      value->is_object() && value->contains("content") ? &value->at("content") : value;
  if (!text->is_string()) fields.refuse("eos_token", "a text or an object with one under content");
  const auto stop = text->get<std::string>();
  if (std::find(stop_texts.begin(), stop_texts.end(), stop) == stop_texts.end())
    stop_texts.push_back(stop);
}

// The settings of generation_config.json that transformers' generate() would apply and greedy
// decoding does not, but those whose value changes nothing.
std::vector<std::string> sampling_settings(const Fields& fields) {
  const std::vector<std::pair<const char*, json>> neutral = {{"do_sample", false},
                                                             {"temperature", 1},
                                                             {"top_k", 0},
                                                             {"top_p", 1},
                                                             {"min_p", 0},
                                                             {"top_h", nullptr},
                                                             {"typical_p", 1},
                                                             {"epsilon_cutoff", 0},
                                                             {"eta_cutoff", 0},
                                                             {"penalty_alpha", 0},
                                                             {"num_beams", 1},
                                                             {"repetition_penalty", 1},
                                                             {"encoder_repetition_penalty", 1},
                                                             {"presence_penalty", 0},
                                                             {"frequency_penalty", 0},
                                                             {"no_repeat_ngram_size", 0},
                                                             {"guidance_scale", 1},
                                                             {"min_length", 0},
                                                             {"min_new_tokens", 0},
                                                             {"bad_words_ids", nullptr},
                                                             {"sequence_bias", nullptr},
                                                             {"suppress_tokens", nullptr},
                                                             {"begin_suppress_tokens", nullptr},
                                                             {"forced_bos_token_id", nullptr},
                                                             {"forced_eos_token_id", nullptr},
                                                             {"stop_strings", nullptr}};
  std::vector<std::string> settings;
  for (const auto& [name, value] : neutral)
    if (const json* seen = fields.find(name); seen && *seen != value && !seen->empty())
      settings.push_back(fmt::format("{} {}", name, Fields::shown(*seen)));
  return settings;
}

}  // namespace

ModelConfig read_model_config(const fs::path& path) {
  const bool is_directory = fs::is_directory(path);
  const fs::path file = is_directory ? path / "config.json" : path, directory = file.parent_path();
  require(fs::exists(path), ExitCode::usage,
          "{}: no such file or directory; wanted a model directory or a config.json",
          path.string());
  require(fs::exists(file), ExitCode::usage, "{}: has no config.json; wanted a model directory",
          path.string());

  const json object = read_json_object(file);
  const Fields fields(object, file.string());
  ModelConfig config = read_config_json(fields);
  std::set<Token> stop_ids;
  add_stop_ids(fields, config.vocab_size, stop_ids);
  if (const fs::path beside = directory / "generation_config.json"; fs::exists(beside)) {
    const json generation = read_json_object(beside);
    add_stop_ids(Fields(generation, beside.string()), config.vocab_size, stop_ids);
    config.sampling = sampling_settings(Fields(generation, beside.string()));
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    if (const fs::path beside = directory / name; fs::exists(beside)) {
      const json names = read_json_object(beside);
      add_stop_text(Fields(names, beside.string()), config.stop_texts);
    }
  config.stop_ids.assign(stop_ids.begin(), stop_ids.end());
  return config;
}

// Float32 step by step as transformers does it. The power is taken in float64 and rounded, which
// torch's own float32 power meets to the last bit but for one entry in two hundred, where it is off
// by one unit in the last place.
std::string digest_text(const ModelConfig& c) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", c.family, c.hidden_size,
                     c.intermediate_size, c.vocab_size, c.num_layers, c.num_heads, c.num_kv_heads,
                     c.head_dim, c.rms_norm_eps, c.rope.theta, c.rope.type, c.rope.factor,
                     c.rope.low_freq_factor, c.rope.high_freq_factor, c.rope.original_max_positions,
                     c.tied_head);
}

std::vector<float> inverse_frequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto base = float(rope.theta), factor = float(rope.factor);
  const auto low = float(rope.low_freq_factor), original = float(rope.original_max_positions);
  const auto low_wavelength = float(double(rope.original_max_positions) / rope.low_freq_factor);
  const auto high_wavelength = float(double(rope.original_max_positions) / rope.high_freq_factor);
  const auto span = float(rope.high_freq_factor - rope.low_freq_factor);

  std::vector<float> frequencies;
  for (int i = 0; i < config.head_dim; i += 2) {
    const float exponent = float(i) / float(config.head_dim);
    float frequency = 1.0f / float(std::pow(double(base), double(exponent)));
    if (rope.type == "linear") frequency /= factor;
    if (rope.type == "llama3") {
      const float wavelength = float(2 * std::numbers::pi) / frequency;
      if (wavelength > low_wavelength) {
        frequency /= factor;
      } else if (!(wavelength < high_wavelength)) {
        const float smooth = (original / wavelength - low) / span;
        frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace dex
