#include "common/model/model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace dex {
namespace {

constexpr std::size_t kSampledBytes = 4096;  // of each tensor's start and end

std::vector<Token> all_stop_ids(const ModelConfig& config, const Tokenizer* tokenizer) {
  std::vector<Token> ids = config.stop_ids;
  if (tokenizer)
    for (const std::string& text : config.stop_texts)
      if (const auto id = tokenizer->special_id(text)) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool has_tokenizer(const std::filesystem::path& dir) {
  return std::filesystem::exists(dir / "tokenizer.json") ||
         std::filesystem::exists(dir / "tokenizer.model");
}

}  // namespace

std::string model_fingerprint(const ModelConfig& c, const WeightFile& weights) {
  Sha256 digest;
  digest.add(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", c.family,
                         c.hidden_size, c.intermediate_size, c.vocab_size, c.num_layers,
                         c.num_heads, c.num_kv_heads, c.head_dim, c.rms_norm_eps, c.rope.theta,
                         c.rope.type, c.rope.factor, c.rope.low_freq_factor,
                         c.rope.high_freq_factor, c.rope.original_max_positions, c.tied_head));
  for (const auto& [name, tensor] : weights.tensors()) {
    digest.add(fmt::format("{} {} {}\n", name, name_of(tensor.type), fmt::join(tensor.shape, ",")));
    digest.add(tensor.bytes.first(std::min(kSampledBytes, tensor.bytes.size())));
    digest.add(tensor.bytes.last(std::min(kSampledBytes, tensor.bytes.size())));
  }
  return digest.hex();
}

Model Model::load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                  WeightPlace place) {
  return load(dir, depths, dtype, place, {0, depths.num_stages()});
}

Model Model::load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                  WeightPlace place, StageShare share) {
  Model model{.config = read_model_config(dir),
              .depths = depths,
              .dtype = dtype,
              .device = place.device,
              .share = share};
  require(depths.num_layers() == model.config.num_layers, ExitCode::usage,
          "{}: the depth set {} ends at {}, the model has {} layers", dir.string(), depths.text(),
          depths.num_layers(), model.config.num_layers);
  const WeightFile weights = WeightFile::open(dir);
  require(
      !weights.has(fmt::format("model.layers.{}.input_layernorm.weight", model.config.num_layers)),
      ExitCode::io, "{}: the weights go on after the {} layers that config.json names",
      dir.string(), model.config.num_layers);
  model.fingerprint = model_fingerprint(model.config, weights);
  if (has_tokenizer(dir)) model.tokenizer = load_tokenizer(dir);
  const int rows = int(model.config.vocab_size);
  const int vocab = model.tokenizer ? std::min(model.tokenizer->size(), rows) : rows;
  if (vocab < rows)
    spdlog::info("{}: head rows {}..{} have no token and are never emitted", dir.string(), vocab,
                 rows - 1);
  const bool whole = share.end - share.begin == depths.num_stages(),
             reads_out = whole || model.exits() > 0;
  if (share.begin == 0 || (reads_out && model.config.tied_head))
    model.embedding = std::make_unique<Embedding>(model.config, weights, dtype, place);
  if (reads_out)
    model.head =
        std::make_unique<Head>(model.config, weights, model.embedding.get(), vocab, dtype, place);
  if (share.begin > 0) model.embedding.reset();  // a tied head shares its memory
  for (int k = share.begin; k < share.end; ++k)
    model.stages.emplace_back(model.config, depths.layers(k), weights, dtype, place);
  model.stop_ids = all_stop_ids(model.config, model.tokenizer.get());
  return model;
}

}  // namespace dex
