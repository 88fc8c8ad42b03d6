#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "checkpoints/adapter_file.h"
#include "common/explore/depth_set.h"
#include "tests/support/program.h"

using namespace dex;

namespace {

const std::filesystem::path kRecipes = std::filesystem::path(DEX_SOURCE_DIR) / "launch" / "recipes";

// What the models' published config.json files say, and what the paper says of each setting.
struct Setting {
  const char* recipe;
  const char* command;
  int explorers;  // K of DEX-1/K
  int layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  const char* family;
  // of all adapters, with the digits that the paper gives (none for Qwen3: by its formula)
  double parameters;
  double last_digit;
};
const Setting kSettings[] = {
    {"codellama-34b-instruct_dex3", "train", 3, 48, 8192, 64, 8, 128, 22016, 32000, "llama",
     536.9e6, 0.1e6},
    {"llama2-70b-chat_dex4", "train", 4, 80, 8192, 64, 8, 128, 28672, 32000, "llama", 805.4e6,
     0.1e6},
    {"llama2-70b-chat_dex8", "train", 8, 80, 8192, 64, 8, 128, 28672, 32000, "llama", 1.88e9,
     0.01e9},
    {"qwen3-32b_dex3", "train", 3, 64, 5120, 64, 8, 128, 25600, 151936, "qwen3",
     2 * (4.0 * 5120 * 5120 + 4 * 5120 + 1), 1},
    {"layerskip-codellama-34b_dex3", "decode", 3, 48, 8192, 64, 8, 128, 22016, 32000, "llama", 0,
     0},
    {"layerskip-llama2-70b_dex4", "decode", 4, 80, 8192, 64, 8, 128, 28672, 32000, "llama", 0, 0},
};

std::map<std::string, std::string> options_of(const Setting& setting) {
  std::istringstream file(test::contents(kRecipes / (std::string(setting.recipe) + ".conf")));
  std::map<std::string, std::string> options;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line.front() != '#')
      options[line.substr(0, line.find(" = "))] = line.substr(line.find(" = ") + 3);
  return options;
}

void write_config(const std::filesystem::path& dir, const Setting& s) {
  std::filesystem::create_directories(dir);
  const nlohmann::json config = {{"model_type", s.family},
                                 {"hidden_size", s.hidden},
                                 {"intermediate_size", s.intermediate},
                                 {"num_hidden_layers", s.layers},
                                 {"num_attention_heads", s.heads},
                                 {"num_key_value_heads", s.kv_heads},
                                 {"head_dim", s.head_dim},
                                 {"vocab_size", s.vocab},
                                 {"max_position_embeddings", 4096},
                                 {"hidden_act", "silu"},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 1e6},
                                 {"tie_word_embeddings", false},
                                 {"torch_dtype", "bfloat16"},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", 2}};
  std::ofstream(dir / "config.json") << config.dump();
}

double parameters_of(int hidden, const std::vector<int>& depths) {
  double count = 0;
  for (const auto& [name, shape] :
       adapter_tensors({.depths = depths, .hidden_size = hidden, .width = 2 * hidden}))
    count += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  return count;
}

}  // namespace

TEST_CASE("there is a setting of this test for every recipe") {
  std::set<std::string> files, settings;
  for (const auto& entry : std::filesystem::directory_iterator(kRecipes))
    files.insert(entry.path().stem().string());
  for (const Setting& setting : kSettings) settings.insert(setting.recipe);
  CHECK(files == settings);
}

TEST_CASE("every recipe explores the paper's depths with adapters of the paper's size") {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.recipe);
    const auto depths = DepthSet::parse(options_of(setting).at("depths"), setting.layers);
    CHECK(depths.text() == DepthSet::uniform(setting.explorers, setting.layers).text());
    if (setting.parameters == 0) continue;
    std::vector<int> inner = depths.depths();
    inner.pop_back();
    CHECK(parameters_of(setting.hidden, inner) ==
          Approx(setting.parameters).margin(setting.last_digit / 2).epsilon(0));
  }
}

TEST_CASE("recipes that train say what the paper's training was") {
  for (const Setting& setting : kSettings) {
    if (std::string(setting.command) != "train") continue;
    CAPTURE(setting.recipe);
    auto options = options_of(setting);
    options.erase("model");
    options.erase("depths");
    CHECK(options == std::map<std::string, std::string>{{"epochs", "2"},
                                                        {"batch-size", "16"},
                                                        {"micro-batch", "4"},
                                                        {"lr", "1e-3"},
                                                        {"warmup", "0.06"},
                                                        {"weight-decay", "0"},
                                                        {"tau", "1"},
                                                        {"init", "paper"},
                                                        {"dtype", "bf16"}});
  }
}

TEST_CASE("dex takes every recipe as far as the model's weights") {
  for (const Setting& setting : kSettings) {
    CAPTURE(setting.recipe);
    const test::TempDir dir;
    write_config(dir / "model", setting);
    const std::string more =
        std::string(setting.command) == "train"
            ? " --data " + (dir / "data").string() + " --out " + (dir / "out").string()
            : " --prompt-ids 1";
    const auto outcome = test::dex_program(std::string("--quiet ") + setting.command +
                                           " --config " + (kRecipes / setting.recipe).string() +
                                           ".conf --model " + (dir / "model").string() + more);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("model.safetensors") != std::string::npos);
  }
}
