#include "decode/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "checkpoints/adapter_file.h"
#include "common/base/allowed_cores.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace dex {
namespace {

constexpr int kMostThreads = 1024;

int chosen_threads(const SessionOptions& options) {
  require(options.threads >= 0 && options.threads <= kMostThreads, ExitCode::usage,
          "--threads is {}, wanted 0 .. {}", options.threads, kMostThreads);
  return options.threads > 0 ? options.threads : allowed_cores();
}

DepthSet chosen_depths(const SessionOptions& options, int num_layers,
                       const std::optional<AdapterFile>& file) {
  if (!options.depths.empty() || !file) return DepthSet::parse(options.depths, num_layers);
  return DepthSet(file->config.depths, num_layers);
}

// The exit of each depth; null where the file has none.
Adapters adapters_of(const AdapterFile& file, const Model& model, const std::string& origin) {
  const auto& trained = file.config.depths;
  Adapters adapters;
  for (const int depth : model.depths.depths()) {
    const bool has = std::find(trained.begin(), trained.end(), depth) != trained.end();
    if (!has && depth != model.config.num_layers)
      spdlog::warn("{}: no adapter for depth {}; its exit reads the bare hidden state", origin,
                   depth);
    adapters.push_back(
        has ? std::make_unique<Adapter>(AdapterWeights::read(file.weights, model.config, depth),
                                        model.config.rms_norm_eps, model.dtype)
            : nullptr);
  }
  return adapters;
}

}  // namespace

Session::Session(const SessionOptions& options, const std::function<void(const DepthSet&)>& check)
    : options_(options), threads_(chosen_threads(options)) {
  const Dtype dtype = parse_dtype(options.dtype);
  require(std::filesystem::exists(options.model), ExitCode::usage, "{}: no such model directory",
          options.model.string());
  const ModelConfig config = read_model_config(options.model);
  std::optional<AdapterFile> file;
  if (!options.adapters.empty()) file.emplace(read_adapter_file(options.adapters));
  const DepthSet depths = chosen_depths(options, config.num_layers, file);
  if (check) check(depths);
  if (!options.chat_template.empty()) chat_template();
  const bool compared = file && !file->config.model_tensors.empty();
  model_ =
      std::make_unique<Model>(Model::load(options.model, depths, dtype, WeightLayout::panels,
                                          compared ? DigestsOf::what_is_read : DigestsOf::nothing));
  if (!config.sampling.empty())
    spdlog::info("{}: generation_config.json asks for {}; decoding is greedy and applies none",
                 options.model.string(), fmt::join(config.sampling, ", "));
  if (!file) return;
  file->require_model(model_->fingerprint, model_->digests.value_or(Digests()));
  adapters_ = adapters_of(*file, *model_, options.adapters.string());
}

bool Session::has_adapters() const {
  return std::any_of(adapters_.begin(), adapters_.end(),
                     [](const auto& a) { return a != nullptr; });
}

std::string Session::model_name() const {
  return std::filesystem::canonical(options_.model).filename().string();
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
  if (!ids.empty() && !rest.empty() && rest.front() == ids.front()) warn_of_two_begins();
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

std::vector<Token> Session::chat_ids(std::span<const Message> messages) const {
  return chat_template().render(messages, tokenizer(), /*open_answer=*/true).tokens;
}

const ChatTemplate& Session::chat_template() const {
  if (!chat_template_)
    chat_template_ =
        ChatTemplate::chosen(options_.chat_template, options_.model, options_.rendering);
  return *chat_template_;
}

void Session::warn_of_two_begins() const {
  if (!two_begins_->test_and_set())
    spdlog::warn(
        "a prompt begins with {0}, which the model's files put before every text: it now "
        "stands there twice",
        tokenizer().text_of_id(*tokenizer().bos_id()));
}

}  // namespace dex
