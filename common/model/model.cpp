#include "common/model/model.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/model/weight_list.h"

namespace dex {
namespace {

// An end token that no file knows would never come, and text would go on to the length limit.
std::vector<Token> all_stop_ids(const std::filesystem::path& dir, const ModelConfig& config,
                                const Tokenizer* tokenizer) {
  std::vector<Token> ids = config.stop_ids;
  if (!tokenizer) return ids;
  for (const Token id : ids)
    require(!tokenizer->text_of_id(id).empty(), ExitCode::usage,
            "{}: config.json or generation_config.json names {} as eos_token_id; wanted an id that "
            "the tokenizer has",
            dir.string(), id);
  for (const std::string& text : config.stop_texts) {
    const auto id = tokenizer->special_id(text);
    require(id.has_value(), ExitCode::usage,
            "{}: the eos_token is \"{}\"; wanted one that tokenizer.json, tokenizer.model, "
            "added_tokens.json or the added_tokens_decoder of tokenizer_config.json has",
            dir.string(), text);
    ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Ids below `vocab` without a token.
std::vector<Token> holes_of(const Tokenizer* tokenizer, int vocab) {
  std::vector<Token> holes;
  for (Token id = 0; tokenizer && id < vocab; ++id)
    if (tokenizer->text_of_id(id).empty()) holes.push_back(id);
  return holes;
}

bool has_tokenizer(const std::filesystem::path& dir) {
  return std::filesystem::exists(dir / "tokenizer.json") ||
         std::filesystem::exists(dir / "tokenizer.model");
}

ModelInfo info_of(const std::filesystem::path& dir, const ModelConfig& config,
                  const WeightFile& weights) {
  ModelInfo info{.config = config, .fingerprint = model_fingerprint(config, weights)};
  if (has_tokenizer(dir)) info.tokenizer = load_tokenizer(dir);
  const int rows = config.vocab_size;
  info.vocab = info.tokenizer ? std::min(info.tokenizer->size(), rows) : rows;
  info.holes = holes_of(info.tokenizer.get(), info.vocab);
  if (!info.holes.empty())
    spdlog::info("{}: {} ids below {}, from {} on, have no token and are never emitted",
                 dir.string(), info.holes.size(), info.vocab, info.holes.front());
  if (info.vocab < rows)
    spdlog::info("{}: head rows {}..{} have no token and are never emitted", dir.string(),
                 info.vocab, rows - 1);
  if (info.tokenizer && info.tokenizer->size() > rows)
    spdlog::warn(
        "{}: the tokenizer has {} ids, the embedding {} rows; texts with an id from {} on "
        "are refused",
        dir.string(), info.tokenizer->size(), rows, rows);
  info.stop_ids = all_stop_ids(dir, config, info.tokenizer.get());
  return info;
}

}  // namespace

Model Model::load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                  WeightPlace place, DigestsOf digests) {
  return load(dir, depths, dtype, place, {0, depths.num_stages()}, digests);
}

Model Model::load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                  WeightPlace place, StageShare share, DigestsOf digests) {
  const int inner = std::min(share.end, depths.num_stages() - 1) - share.begin;
  const bool whole = share.size() == depths.num_stages();
  return load(dir, depths, dtype, place, share,
              {.embedding = share.begin == 0, .head = whole || inner > 0}, digests);
}

Model Model::load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                  WeightPlace place, StageShare share, ModelEnds ends, DigestsOf digests) {
  const ModelConfig config = read_model_config(dir);
  require(depths.num_layers() == config.num_layers, ExitCode::usage,
          "{}: the depth set {} ends at {}, the model has {} layers", dir.string(), depths.text(),
          depths.num_layers(), config.num_layers);
  refuse_quantization_note(dir);
  WeightFile weights = WeightFile::open(dir);
  refuse_unread(config, weights, /*compare_head=*/ends.embedding || ends.head);
  if (digests == DigestsOf::what_is_read) weights.take_digests();
  Model model{info_of(dir, config, weights), depths, dtype, place.device, share};
  if (ends.embedding || (ends.head && config.tied_head))
    model.embedding = std::make_unique<Embedding>(config, weights, dtype, place);
  if (ends.head)
    model.head = std::make_unique<Head>(config, weights, model.embedding.get(), model.vocab, dtype,
                                        place, model.holes);
  if (!ends.embedding) model.embedding.reset();  // a tied head shares its memory
  for (int k = share.begin; k < share.end; ++k)
    model.stages.emplace_back(config, depths.layers(k), weights, dtype, place);
  if (digests == DigestsOf::what_is_read) model.digests = weights.digests();
  weights.require_unchanged();
  return model;
}

const Stage& Model::stage(int k) const {
  require(k >= share.begin && k < share.end, ExitCode::bug,
          "stage {} is asked for, here are {} .. {}", k, share.begin, share.end - 1);
  return stages[k - share.begin];
}

const Digests& Model::known_digests() const {
  require(digests.has_value(), ExitCode::bug, "the model's digests are compared, but not taken");
  return *digests;
}

std::int64_t Model::pass_bytes() const {
  std::int64_t bytes = head ? head->matrix().bytes() : 0;
  for (const Stage& stage : stages)
    for (const LayerWeights& w : stage.layers())
      for (const Matrix* matrix : {&w.qkv, &w.out, &w.gate_up, &w.down}) bytes += matrix->bytes();
  return bytes;
}

}  // namespace dex
