#include "decode/session.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <thread>

#include "checkpoints/adapter_file.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace dex {
namespace {

constexpr int kMostThreads = 1024;

// "cpu:0,cpu:1" -> cores; "cpu" or "" -> none bound. One device per explorer.
std::vector<int> parse_cores(const std::string& devices, int num_stages) {
  std::vector<int> cores;
  if (devices.empty() || devices == "cpu") return cores;
  for (std::size_t at = 0; at <= devices.size();) {
    const auto end = std::min(devices.find(',', at), devices.size());
    const std::string one = devices.substr(at, end - at);
    int core = -1;
    const bool cpu = one.starts_with("cpu:") &&
                     std::from_chars(one.data() + 4, one.data() + one.size(), core).ptr ==
                         one.data() + one.size();
    require(cpu && core >= 0 && core < int(std::thread::hardware_concurrency()), ExitCode::usage,
            "--devices names \"{}\", wanted cpu:0 .. cpu:{}", one,
            std::thread::hardware_concurrency() - 1);
    cores.push_back(core);
    at = end + 1;
  }
  require(int(cores.size()) == num_stages, ExitCode::usage,
          "--devices names {} devices, wanted one for each of the {} explorers", cores.size(),
          num_stages);
  return cores;
}

DepthSet chosen_depths(const SessionOptions& options, const ModelConfig& config,
                       const std::optional<AdapterFile>& file) {
  if (!options.depths.empty() || !file) return DepthSet::parse(options.depths, config.num_layers);
  return DepthSet(file->config.depths, config.num_layers);
}

int chosen_threads(const SessionOptions& options) {
  require(options.threads >= 0 && options.threads <= kMostThreads, ExitCode::usage,
          "--threads is {}, wanted 0 .. {}", options.threads, kMostThreads);
  return options.threads > 0 ? options.threads
                             : std::max(1, int(std::thread::hardware_concurrency()));
}

}  // namespace

void SessionOptions::add_model_options(CLI::App& command) {
  command.add_option("--model", model, "Model directory in HF layout")->required();
  command.add_option("--adapters", adapters,
                     "Adapter directory; its depths are explored unless --depths says otherwise");
  command.add_option("--depths", depths,
                     "Explored depths, such as 10,20 (the full depth is always explored)");
  command.add_option("--template", chat_template,
                     "Chat template, when the model's files do not tell");
  command
      .add_option("--dtype", dtype,
                  "Type of weights and KV cache: f32, bf16, or int8 (weights of int8 made from the "
                  "model's, cache of bf16)")
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads in all (0: one per core)")
      ->capture_default_str();
}

void SessionOptions::add_explorer_options(CLI::App& command) {
  command
      .add_option("--expand", expand,
                  "Which rows are explored: full (the paper's lattice) or budget")
      ->capture_default_str();
  command.add_option("--rows", rows, "budget: new rows per round")->capture_default_str();
  command.add_option("--width", width, "budget: ranked tokens taken from each exit")
      ->capture_default_str();
  command.add_flag("--no-decs", no_decs,
                   "full: exits propose their best token even if a shallower one did");
  command.add_flag("--single-exit", single_exit, "full: only the first exit proposes");
  command.add_option(
      "--devices", devices,
      "One device per explorer, such as cpu:0,cpu:1 (default: the system places them)");
}

LatticePolicy SessionOptions::policy() const {
  require(expand == "full" || expand == "budget", ExitCode::usage,
          "--expand is \"{}\", wanted full or budget", expand);
  require(expand == "full" || (!no_decs && !single_exit), ExitCode::usage,
          "--no-decs and --single-exit need --expand full");
  return {.expand = expand == "full" ? Expand::full : Expand::budget,
          .rows = rows,
          .width = width,
          .decs = !no_decs,
          .single_exit = single_exit};
}

Session::Session(const SessionOptions& options)
    : options_(options), policy_(options.policy()), threads_(chosen_threads(options)) {
  const Dtype dtype = parse_dtype(options.dtype);
  require(std::filesystem::exists(options.model), ExitCode::usage, "{}: no such model directory",
          options.model.string());
  const ModelConfig config = read_model_config(options.model);
  std::optional<AdapterFile> file;
  if (!options.adapters.empty()) file.emplace(read_adapter_file(options.adapters));
  const DepthSet depths = chosen_depths(options, config, file);
  policy_.check(depths.num_stages());
  cores_ = parse_cores(options.devices, depths.num_stages());
  if (!options.chat_template.empty()) ChatTemplate::named(options.chat_template);
  model_ = std::make_unique<Model>(Model::load(options.model, depths, dtype));
  if (!file) return;
  file->require_model(model_->fingerprint);
  const auto& trained = file->config.depths;
  for (int k = 0; k < model_->depths.num_stages(); ++k) {
    const int depth = model_->depths.depth(k);
    const bool has = std::find(trained.begin(), trained.end(), depth) != trained.end();
    if (!has && depth != config.num_layers)
      spdlog::warn("{}: no adapter for depth {}; its exit reads the bare hidden state",
                   options.adapters.string(), depth);
    adapters_.push_back(
        has ? std::make_unique<Adapter>(AdapterWeights::read(file->weights, config, depth),
                                        config.rms_norm_eps, dtype)
            : nullptr);
  }
}

bool Session::has_adapters() const {
  return std::any_of(adapters_.begin(), adapters_.end(),
                     [](const auto& a) { return a != nullptr; });
}

std::unique_ptr<Decoder> Session::plain() const { return plain_decoder(*model_, threads_); }

std::unique_ptr<Decoder> Session::dex() const {
  const int stages = model_->depths.num_stages();
  const int threads = cores_.empty() ? std::max(1, threads_ / stages) : 1;  // a device is one core
  return dex_decoder(*model_, adapters_, policy_, threads, cores_);
}

const Tokenizer& Session::tokenizer() const {
  require(model_->tokenizer != nullptr, ExitCode::usage,
          "{}: no tokenizer.json or tokenizer.model, which text needs; dex decode --prompt-ids "
          "needs none",
          options_.model.string());
  return *model_->tokenizer;
}

std::vector<Token> Session::prompt_ids(const std::string& text, bool parse_special) const {
  std::vector<Token> ids;
  if (const auto begin = tokenizer().bos_id()) ids.push_back(*begin);
  const auto rest =
      parse_special ? tokenizer().encode_with_special(text) : tokenizer().encode(text);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

std::vector<Token> Session::chat_ids(std::span<const Message> messages) const {
  const auto chat = options_.chat_template.empty() ? ChatTemplate::of_model(options_.model)
                                                   : ChatTemplate::named(options_.chat_template);
  return chat.render(messages, tokenizer(), /*open_answer=*/true).tokens;
}

}  // namespace dex
