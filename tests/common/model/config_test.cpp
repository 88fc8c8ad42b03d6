#include "common/model/config.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

namespace fs = std::filesystem;
using dex::ExitCode;
using dex::ModelConfig;
using dex::read_model_config;
using dex::test::check_refused;
using dex::test::TempDir;
using nlohmann::json;

namespace {

const json kSmall = json::parse(R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "vocab_size": 100, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 20000.0, "eos_token_id": 2, "hidden_act": "silu"})");

json with(const char* patch) {
  json config = kSmall;
  config.update(json::parse(patch));
  return config;
}

json with_value(const char* key, const char* value) {
  json config = kSmall;
  config[key] = json::parse(value);
  return config;
}

json without(const char* key) {
  json config = kSmall;
  config.erase(key);
  return config;
}

ModelConfig read(const json& config) {
  const TempDir dir;
  return read_model_config(dir.write("config.json", config.dump()));
}

void refuse(const json& config, std::vector<std::string> words) {
  CAPTURE(config.dump());
  words.push_back("config.json");
  check_refused(ExitCode::usage, words, [&] { read(config); });
}

json read_json(const fs::path& path) { return json::parse(dex::read_file(path)); }

}  // namespace

TEST_CASE("a config is read from its directory and from the file itself") {
  const TempDir dir;
  const fs::path file = dir.write("config.json", kSmall.dump());
  for (const fs::path& path : {file, dir.path()}) {
    const ModelConfig config = read_model_config(path);
    CHECK(config.family == "llama");
    CHECK(config.hidden_size == 64);
    CHECK(config.intermediate_size == 96);
    CHECK(config.vocab_size == 100);
    CHECK(config.num_layers == 6);
    CHECK(config.num_heads == 4);
    CHECK(config.num_kv_heads == 2);
    CHECK(config.head_dim == 16);
    CHECK(config.max_positions == 256);
    CHECK(config.rms_norm_eps == 1e-5f);
    CHECK(config.rope.type == "default");
    CHECK(config.rope.theta == 20000.0);
    CHECK_FALSE(config.tied_head);
    CHECK_FALSE(config.qk_norm);
    CHECK(config.stop_ids == std::vector<dex::Token>{2});
    CHECK(config.stop_texts.empty());
  }
}

TEST_CASE("head_dim is taken as stated, and is the quotient when null or absent") {
  CHECK(read(with(R"({"head_dim": 32})")).head_dim == 32);
  CHECK(read(with(R"({"head_dim": null})")).head_dim == 16);
  CHECK(read(with(R"({"hidden_size": 66, "head_dim": 16})")).head_dim == 16);
  refuse(with(R"({"hidden_size": 66})"),
         {"num_attention_heads is 4", "divisor of hidden_size, 66"});
  refuse(with(R"({"hidden_size": 12})"), {"head_dim is 3", "even"});
  refuse(with(R"({"head_dim": 15})"), {"head_dim is 15", "even"});
  refuse(with(R"({"head_dim": 0})"), {"head_dim is 0"});
  refuse(with(R"({"hidden_size": 8192})"), {"head_dim is 2048", "up to 1024"});
}

TEST_CASE("fields with a default may be null or absent") {
  CHECK(read(without("num_key_value_heads")).num_kv_heads == 4);
  CHECK(read(with(R"({"num_key_value_heads": null})")).num_kv_heads == 4);
  CHECK(read(without("hidden_act")).hidden_size == 64);
  CHECK(read(without("architectures")).hidden_size == 64);
  CHECK(read(with(R"({"tie_word_embeddings": true})")).tied_head);
  CHECK_FALSE(read(with(R"({"tie_word_embeddings": null})")).tied_head);
  CHECK(read(without("rope_theta")).rope.theta == 10000.0);
  CHECK(read(without("eos_token_id")).stop_ids.empty());
  CHECK(read(with(R"({"eos_token_id": null, "torch_dtype": "float16", "dtype": "bfloat16"})"))
            .stop_ids.empty());
}

TEST_CASE("every required field is asked for by name") {
  for (const char* name :
       {"model_type", "hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers",
        "num_attention_heads", "max_position_embeddings", "rms_norm_eps"})
    refuse(without(name), {std::string(name) + " is missing"});
}

TEST_CASE("values out of range and of the wrong kind are refused with the value seen") {
  for (const char* name : {"hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers",
                           "num_attention_heads", "num_key_value_heads", "max_position_embeddings"})
    for (const char* value : {"0", "-1", "1.5", "\"64\"", "true", "[64]", "99999999999",
                              "18446744073709551615", "1e300"})
      refuse(with_value(name, value), {std::string(name) + " is "});
  for (const char* value : {"0", "-1e-5", "\"small\"", "[]"})
    refuse(with_value("rms_norm_eps", value), {"rms_norm_eps is "});
  for (const char* value : {"0", "-10000.0", "\"10000\"", "{}"})
    refuse(with_value("rope_theta", value), {"rope_theta is "});
  refuse(with(R"({"num_key_value_heads": 3})"),
         {"num_key_value_heads is 3", "divisor of num_attention_heads, 4"});
  refuse(with(R"({"num_key_value_heads": 8})"), {"num_key_value_heads is 8", "1..4"});
  refuse(with(R"({"tie_word_embeddings": "yes"})"), {"tie_word_embeddings is \"yes\""});
}

TEST_CASE("models that this program does not compute are refused") {
  refuse(with(R"({"model_type": "mistral"})"),
         {"model_type is \"mistral\"", "\"llama\" or \"qwen3\""});
  refuse(with(R"({"architectures": ["LlamaForCausalLMEagle3"]})"),
         {"architectures", "LlamaForCausalLM"});
  refuse(with(R"({"hidden_act": "gelu"})"), {"hidden_act is \"gelu\"", "silu"});
  refuse(with(R"({"attention_bias": true})"), {"attention_bias is true"});
  refuse(with(R"({"mlp_bias": true})"), {"mlp_bias is true"});
  refuse(with(R"({"rope_interleaved": true})"), {"rope_interleaved is true"});
  refuse(with(R"({"use_sliding_window": true})"), {"use_sliding_window is true"});
  refuse(with(R"({"layer_types": ["full_attention", "sliding_attention"]})"), {"layer_types"});
  refuse(with(R"({"quantization": {"bits": 4}})"), {"quantization is ", "quantised"});
  refuse(with(R"({"quantization_config": {"quant_method": "gptq"}})"),
         {"quantization_config", "quantised"});
  refuse(with(R"({"partial_rotary_factor": 0.5})"), {"partial_rotary_factor is 0.5"});
}

TEST_CASE("both spellings of the rope give the same rope") {
  const char* old_way =
      R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}})";
  const json new_way = json::parse(
      R"({"rope_parameters": {"rope_theta": 500000, "rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}})");
  json renamed = without("rope_theta");
  renamed.update(new_way);
  const ModelConfig a = read(with(old_way)), b = read(renamed);
  CHECK(a.rope.type == "llama3");
  CHECK(a.rope.factor == 8.0);
  CHECK(a.rope.original_max_positions == 128);
  CHECK(dex::inverse_frequencies(a) == dex::inverse_frequencies(b));
  json both = with(old_way);
  both.update(new_way);
  CHECK(dex::inverse_frequencies(read(both)) == dex::inverse_frequencies(a));
}

TEST_CASE("null, empty and default scalings leave the rope as it is") {
  for (const char* patch :
       {R"({"rope_scaling": null})", R"({"rope_scaling": {}})", R"({"rope_parameters": null})",
        R"({"rope_scaling": {"type": "default"}})",
        R"({"rope_parameters": {"rope_type": "default"}})",
        R"({"rope_scaling": {"rope_type": "default", "factor": 1.0}})"}) {
    CAPTURE(patch);
    const ModelConfig config = read(with(patch));
    CHECK(config.rope.type == "default");
    CHECK(config.rope.theta == 20000.0);
  }
}

TEST_CASE("ropes that contradict themselves or lack a field are refused") {
  refuse(with(R"({"rope_parameters": {"rope_theta": 1e6}})"),
         {"rope_theta", "20000", "1000000", "rope_parameters"});
  refuse(with(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2}})"),
         {"rope_scaling", "spiral", "\"linear\""});
  refuse(with(R"({"rope_scaling": {"type": "yarn", "factor": 2}})"), {"type is \"yarn\""});
  refuse(with(R"({"rope_scaling": {"type": "linear"}})"), {"factor is missing"});
  refuse(with(R"({"rope_scaling": {"type": "linear", "factor": 0}})"), {"factor is 0"});
  refuse(with(R"({"rope_scaling": {"factor": 4}})"), {"factor is 4"});
  refuse(with(R"({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2}})"),
         {"type is \"linear\"", "llama3"});
  refuse(
      with(
          R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "linear", "factor": 3}})"),
      {"rope_scaling", "same as in rope_parameters"});
  refuse(with(R"({"rope_scaling": "linear"})"),
         {"rope_scaling is \"linear\"", "an object or null"});
  const json llama3 = json::parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 128})");
  for (const char* name :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json scaling = llama3;
    scaling.erase(name);
    json config = kSmall;
    config["rope_scaling"] = scaling;
    refuse(config, {std::string(name) + " is missing", "llama3"});
  }
  json config = kSmall;
  config["rope_scaling"] = llama3;
  config["rope_scaling"]["high_freq_factor"] = 1.0;
  refuse(config, {"high_freq_factor is 1", "more than low_freq_factor"});
}

TEST_CASE("the stop ids of all three files are joined") {
  const TempDir dir;
  dir.write("config.json", with(R"({"eos_token_id": 7})").dump());
  dir.write("generation_config.json", R"({"eos_token_id": [9, 7, 3]})");
  dir.write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  CHECK(read_model_config(dir.path()).stop_ids == std::vector<dex::Token>{3, 7, 9});
  CHECK(read_model_config(dir.path()).stop_texts == std::vector<std::string>{"<|eot_id|>"});
  dir.write("tokenizer_config.json",
            R"({"eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false}})");
  CHECK(read_model_config(dir.path()).stop_texts == std::vector<std::string>{"</s>"});
  dir.write("tokenizer_config.json", R"({"eos_token": null})");
  CHECK(read_model_config(dir.path()).stop_texts.empty());
  CHECK(read(with(R"({"eos_token_id": [5, 4, 5]})")).stop_ids == std::vector<dex::Token>{4, 5});
}

TEST_CASE("an end token that only special_tokens_map.json names counts, too") {
  const TempDir dir;
  dir.write("config.json", kSmall.dump());
  dir.write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  CHECK(read_model_config(dir.path()).stop_texts == std::vector<std::string>{"<|im_end|>"});
  dir.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  CHECK(read_model_config(dir.path()).stop_texts == std::vector<std::string>{"<|im_end|>"});
  dir.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK(read_model_config(dir.path()).stop_texts == std::vector<std::string>{"</s>", "<|im_end|>"});
}

TEST_CASE("settings that would change what greedy decoding gives are listed with their values") {
  const TempDir dir;
  const auto listed = [&](const char* generation) {
    dir.write("config.json", kSmall.dump());
    dir.write("generation_config.json", generation);
    return read_model_config(dir.path()).sampling;
  };
  CHECK(
      listed(
          R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [2]})") ==
      std::vector<std::string>{"do_sample true", "temperature 0.6", "top_k 20", "top_p 0.95"});
  CHECK(listed(R"({"repetition_penalty": 1.05, "suppress_tokens": [1, 2]})") ==
        std::vector<std::string>{"repetition_penalty 1.05", "suppress_tokens [1,2]"});
  CHECK(
      listed(
          R"({"do_sample": false, "temperature": 1.0, "top_p": 1, "top_k": null, "bad_words_ids": [],
                   "transformers_version": "5.0", "max_new_tokens": 512})")
          .empty());
  CHECK(read(kSmall).sampling.empty());
}

TEST_CASE("stop ids that are no ids are refused with the file that states them") {
  for (const char* value :
       {"100", "-1", "1.0", "\"</s>\"", "true", "[1, 100]", "[[1]]", "{}", "4294967297"})
    refuse(with_value("eos_token_id", value), {"eos_token_id is ", "0..99"});
  const TempDir dir;
  dir.write("config.json", kSmall.dump());
  dir.write("generation_config.json", R"({"eos_token_id": [2, 100]})");
  check_refused(ExitCode::usage, {"generation_config.json", "[2,100]"},
                [&] { read_model_config(dir.path()); });
  dir.write("generation_config.json", R"({"eos_token_id": [2]})");
  dir.write("tokenizer_config.json", R"({"eos_token": 2})");
  check_refused(ExitCode::usage, {"tokenizer_config.json", "eos_token is 2"},
                [&] { read_model_config(dir.path()); });
}

TEST_CASE("what is not a config is refused by what it is") {
  const TempDir dir;
  check_refused(ExitCode::usage, {"absent", "no such"}, [&] { read_model_config(dir / "absent"); });
  check_refused(ExitCode::usage, {"has no config.json"}, [&] { read_model_config(dir.path()); });
  const auto refuse_bytes = [&](const std::string& bytes, std::vector<std::string> words) {
    const fs::path file = dir.write("config.json", bytes);
    words.push_back(file.string());
    check_refused(ExitCode::io, words, [&] { read_model_config(file); });
  };
  refuse_bytes("", {"not JSON", "0 bytes"});
  refuse_bytes("[1, 2]", {"array", "wanted an object"});
  refuse_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
               {"git-lfs pointer"});
  refuse_bytes("# xet version 0\nfilesize = 1\n", {"Xet pointer"});
  refuse_bytes("\n <!DOCTYPE html><html>", {"web page"});
  refuse_bytes(R"({"hidden_size": 1, "hidden_size": 2})", {"hidden_size", "twice"});
  refuse_bytes(std::string(100000, '['), {"nested"});
  refuse_bytes("{\"a\": \"" + std::string(100000, 'x'), {"not JSON", "..."});
  const std::string whole = kSmall.dump();
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    dir.write("config.json", whole.substr(0, cut));
    REQUIRE(dex::test::error_of([&] { read_model_config(dir.path()); })->code() == ExitCode::io);
  }
}

TEST_CASE("the ten spellings of the rope give the expected tables or are refused") {
  const auto cases = dex::test::shared("cases/d-r1");
  if (!cases) return;
  const json expected = read_json(*cases / "expected.json");
  REQUIRE(expected.size() == 10);
  for (const auto& [name, want] : expected.items()) {
    CAPTURE(name);
    if (want.contains("expect")) {
      check_refused(ExitCode::usage, {name}, [&, key = name] { read_model_config(*cases / key); });
      continue;
    }
    const ModelConfig config = read_model_config(*cases / name);
    CHECK(config.rope.theta == want["theta"].get<double>());
    CHECK(config.head_dim == want["head_dim"].get<int>());
    const std::vector<float> table = dex::inverse_frequencies(config);
    REQUIRE(table.size() == 64);
    for (const auto& [i, value] : want["inv_freq"].items())
      CHECK(double(table.at(std::stoul(i))) == Approx(value.get<double>()).epsilon(2e-6));
  }
}

TEST_CASE("head size and heads of the small Qwen3 model come from its config") {
  const auto model = dex::test::shared("cases/d-m1");
  if (!model) return;
  const ModelConfig config = read_model_config(*model);
  CHECK(config.family == "qwen3");
  CHECK(config.qk_norm);
  CHECK(config.head_dim == 16);  // hidden / heads is 8
  CHECK(config.num_kv_heads == 2);
  CHECK(config.tied_head);
  CHECK(config.stop_ids == std::vector<dex::Token>{0, 2});
  CHECK(config.stop_texts == std::vector<std::string>{"<|im_end|>"});
}

TEST_CASE("the stop set joins a number, a list and a name") {
  const auto model = dex::test::shared("cases/d-g1");
  if (!model) return;
  const ModelConfig config = read_model_config(*model);
  CHECK(config.stop_ids ==
        read_json(*model / "expected.json")["stop_ids"].get<std::vector<dex::Token>>());
  CHECK(config.stop_texts == std::vector<std::string>{"<|eot_id|>"});
}

TEST_CASE("published configs of every family are read") {
  const auto configs = dex::test::shared("data/hf-configs");
  if (!configs) return;
  struct Want {
    const char* path;
    int layers, heads, kv_heads, head_dim;
    double theta;
    bool tied;
  };
  for (const Want& want :
       {Want{"llama2-70b/config.json", 80, 64, 8, 128, 1e4, false},
        Want{"llama2-70b/config.neuronx.json", 80, 64, 8, 128, 1e4, false},
        Want{"codellama-7b", 32, 32, 32, 128, 1e6, false},
        Want{"codellama-34b-instruct.derived", 48, 64, 8, 128, 1e6, false},
        Want{"layerskip.derived/layerskip-llama2-70B.config.json", 80, 64, 8, 128, 1e4, false},
        Want{"layerskip.derived/layerskip-codellama-34B.config.json", 48, 64, 8, 128, 1e6, false},
        Want{"llama3.1-8b/config.json", 32, 32, 8, 128, 5e5, false},
        Want{"llama3.1-8b/config.instruct.json", 32, 32, 8, 128, 5e5, false},
        Want{"llama3.1-8b/config.llama3-8b.json", 32, 32, 8, 128, 5e5, false},
        Want{"llama3.2-1b", 16, 32, 8, 64, 5e5, true},
        Want{"smollm2-135m/config.transformers4.json", 30, 9, 3, 64, 1e5, true},
        Want{"smollm2-135m/config.transformers5.json", 30, 9, 3, 64, 1e5, true},
        Want{"tinyllama", 22, 32, 4, 64, 1e4, false},
        Want{"qwen3/Qwen3-32B.config.json", 64, 64, 8, 128, 1e6, false},
        Want{"qwen3/Qwen3-14B.config.json", 40, 40, 8, 128, 1e6, false},
        Want{"qwen3/Qwen3-8B.config.json", 36, 32, 8, 128, 1e6, false},
        Want{"qwen3/Qwen3-8B.no-head_dim.config.json", 36, 32, 8, 128, 1e6, false},
        Want{"qwen3/Qwen3-4B.config.json", 36, 32, 8, 128, 1e6, true},
        Want{"qwen3/Qwen3-4B-2507.config.json", 36, 32, 8, 128, 5e6, true}}) {
    CAPTURE(want.path);
    const ModelConfig config = read_model_config(*configs / want.path);
    CHECK(config.num_layers == want.layers);
    CHECK(config.num_heads == want.heads);
    CHECK(config.num_kv_heads == want.kv_heads);
    CHECK(config.head_dim == want.head_dim);
    CHECK(config.rope.theta == want.theta);
    CHECK(config.tied_head == want.tied);
    CHECK_FALSE(config.stop_ids.empty());
  }
  CHECK(read_model_config(*configs / "llama3.1-8b/config.instruct.json").stop_ids ==
        std::vector<dex::Token>{128001, 128008, 128009});
  CHECK(read_model_config(*configs / "llama3.2-1b").rope.factor == 32.0);
  CHECK(read_model_config(*configs / "codellama-7b").stop_texts ==
        std::vector<std::string>{"</s>"});
}

TEST_CASE("published configs of models that are not ours are refused") {
  const auto configs = dex::test::shared("data/hf-configs/eagle/specforge-qwen3-32b-eagle3.json");
  if (!configs) return;
  check_refused(ExitCode::usage, {"LlamaForCausalLMEagle3"}, [&] { read_model_config(*configs); });
}

TEST_CASE("a quantised model is refused by its config") {
  const auto model = dex::test::shared("data/negative/mlx-quantised-sharded");
  if (!model) return;
  check_refused(ExitCode::usage, {"quantization", "quantised weights are not read"},
                [&] { read_model_config(*model); });
}
