// A model: what its files say, whether its tensors fit, and what it takes to hold it.
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <set>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/safetensors.h"
#include "common/model/config.h"
#include "common/model/fingerprint.h"
#include "common/model/weight_list.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "launch/inspect/inspection.h"
#include "launch/inspect/tensor_table.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
std::uint64_t elements(const TensorShapes& shapes) {
  std::uint64_t total = 0;
  for (const auto& [name, shape] : shapes) {
    std::uint64_t count = 1;
    for (std::int64_t size : shape) count *= std::uint64_t(size);
    total += count;
  }
  return total;
}

std::vector<std::string> misfits(const TensorShapes& shapes, const WeightFile& weights) {
  std::vector<std::string> problems;
  for (const auto& [name, shape] : shapes) {
    if (!weights.has(name)) {
      problems.push_back(fmt::format("{}: no tensor {}", weights.origin(), name));
    } else if (const auto& seen = weights.at(name).shape; seen != shape) {
      problems.push_back(fmt::format("{}: {} is [{}], config.json wants [{}]", weights.origin(),
                                     name, fmt::join(seen, ", "), fmt::join(shape, ", ")));
    }
  }
  return problems;
}

// Text and facts of a model grow together, so that neither knows more than the other.
class Report {
 public:
  void row(const std::string& title, const std::string& key, const json& value,
           std::string text = "") {
    rows_.push_back({title, text.empty()
                                ? (value.is_string() ? value.get<std::string>() : value.dump())
                                : text});
    facts[key] = value;
  }
  void remark(const std::string& title, const std::string& text) { rows_.push_back({title, text}); }
  void problem(const std::string& text) {
    rows_.push_back({"PROBLEM", text});
    facts["problems"].push_back(text);
  }
  std::string text() const { return columns(rows_); }
  ExitCode code() const { return facts["problems"].empty() ? ExitCode::done : ExitCode::io; }

  json facts = {{"kind", "model"}, {"problems", json::array()}};

 private:
  Rows rows_;
};

std::string rope_text(const RopeConfig& rope) {
  if (rope.type == "default") return fmt::format("theta {}, no scaling", rope.theta);
  if (rope.type == "linear")
    return fmt::format("theta {}, linear, factor {}", rope.theta, rope.factor);
  return fmt::format("theta {}, llama3, factor {}, low {}, high {}, original positions {}",
                     rope.theta, rope.factor, rope.low_freq_factor, rope.high_freq_factor,
                     rope.original_max_positions);
}

void report_config(const ModelConfig& c, Report& report) {
  report.row("family", "family", c.family);
  report.row("layers", "num_layers", c.num_layers);
  report.row("hidden size", "hidden_size", c.hidden_size);
  report.row("intermediate", "intermediate_size", c.intermediate_size);
  report.row(
      "heads", "num_heads", c.num_heads,
      fmt::format("{}, {} for keys and values, of {}", c.num_heads, c.num_kv_heads, c.head_dim));
  report.facts["num_kv_heads"] = c.num_kv_heads;
  report.facts["head_dim"] = c.head_dim;
  report.row("q and k norms", "qk_norm", c.qk_norm, c.qk_norm ? "yes" : "no");
  report.row("vocabulary", "vocab_size", c.vocab_size);
  report.row("head", "tied_head", c.tied_head, c.tied_head ? "tied to the embedding" : "its own");
  report.row("positions", "max_positions", c.max_positions);
  report.row("norm epsilon", "rms_norm_eps", c.rms_norm_eps, fmt::format("{}", c.rms_norm_eps));

  const std::vector<float> frequencies = inverse_frequencies(c);
  report.row("rope", "rope",
             {{"theta", c.rope.theta}, {"type", c.rope.type}, {"factor", c.rope.factor}},
             rope_text(c.rope));
  if (c.rope.type == "llama3")
    report.facts["rope"].update(
        {{"low_freq_factor", c.rope.low_freq_factor},
         {"high_freq_factor", c.rope.high_freq_factor},
         {"original_max_position_embeddings", c.rope.original_max_positions}});
  report.row("frequencies", "inverse_frequencies", frequencies,
             fmt::format("{:.9g} .. {:.9g} ({})", frequencies.front(), frequencies.back(),
                         frequencies.size()));
}

void report_memory(const ModelConfig& c, Report& report) {
  const std::uint64_t parameters = elements(model_tensors(c));
  const auto cached = 2 * std::uint64_t(c.num_layers) * std::uint64_t(c.num_kv_heads) *
                      std::uint64_t(c.head_dim);  // numbers per position
  report.row("parameters", "parameters", parameters, grouped(parameters));
  for (const auto& [name, size] :
       {std::pair("f32", std::uint64_t{4}), std::pair("bf16", std::uint64_t{2})}) {
    const std::uint64_t positions = std::uint64_t(c.max_positions);
    report.facts["memory"][name] = {{"weights", size * parameters},
                                    {"cache_per_token", size * cached}};
    report.remark(fmt::format("memory {}", name),
                  fmt::format("weights {}, cache {} a token, {} for all positions",
                              bytes_text(size * parameters), bytes_text(size * cached),
                              bytes_text(size * cached * positions)));
  }
}

void report_stops(const ModelConfig& c, const Tokenizer* tokenizer, Report& report) {
  std::set<Token> ids(c.stop_ids.begin(), c.stop_ids.end());
  std::vector<std::string> texts;
  for (const std::string& text : c.stop_texts) {
    const auto id = tokenizer ? tokenizer->special_id(text) : std::nullopt;
    if (id) ids.insert(*id);
    if (!id) texts.push_back(text);
    if (!id && tokenizer)
      report.problem(fmt::format("the eos_token is \"{}\", which no tokenizer file has", text));
  }
  for (const Token id : c.stop_ids)
    if (tokenizer && tokenizer->text_of_id(id).empty())
      report.problem(fmt::format("eos_token_id is {}, which the tokenizer does not have", id));
  for (Token id : ids)
    texts.push_back(tokenizer && id < tokenizer->size()
                        ? fmt::format("{} {}", id, tokenizer->text_of_id(id))
                        : std::to_string(id));
  report.row("stops at", "stop_ids", ids,
             texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, ", ")));
  if (!c.sampling.empty())
    report.row("not applied", "sampling_not_applied", c.sampling,
               fmt::format("{}: decoding is greedy", fmt::join(c.sampling, ", ")));
}

std::unique_ptr<Tokenizer> report_tokenizer(const fs::path& dir, std::int64_t vocabulary,
                                            Report& report) {
  const bool bpe = fs::exists(dir / "tokenizer.json"), pieces = fs::exists(dir / "tokenizer.model");
  if (!bpe && !pieces) {
    report.row("tokenizer", "tokenizer", nullptr, "none: ids in, ids out");
    return nullptr;
  }
  try {
    auto tokenizer = load_tokenizer(dir);
    const bool from_json = bpe && tokenizer->digest() == sha256_of_file(dir / "tokenizer.json");
    report.row(
        "tokenizer", "tokenizer",
        {{"kind", from_json ? "byte-level BPE" : "SentencePiece"},
         {"size", tokenizer->size()},
         {"sha256", tokenizer->digest()}},
        fmt::format("{} of {} ids, SHA-256 {}", from_json ? "byte-level BPE" : "SentencePiece",
                    tokenizer->size(), tokenizer->digest()));
    if (tokenizer->size() < vocabulary)
      report.remark("", fmt::format("{} rows of the head stand for no id: never emitted",
                                    vocabulary - tokenizer->size()));
    if (tokenizer->size() > vocabulary)
      report.remark("", fmt::format("the embedding has {} rows: ids from {} to {} have none, and "
                                    "texts with them are refused",
                                    vocabulary, vocabulary, tokenizer->size() - 1));
    return tokenizer;
  } catch (const Error& error) {
    report.problem(error.what());
    return nullptr;
  }
}

void report_template(const fs::path& dir, Report& report) {
  try {
    const ChatTemplate chat = ChatTemplate::of_model(dir);
    report.row("chat template", "template", chat.name(),
               fmt::format("{}, digest {}",
                           chat.is_built_in() ? chat.name() : "rendered by Python: " + chat.name(),
                           chat.digest()));
  } catch (const Error& error) {
    report.row("chat template", "template", nullptr, fmt::format("not known: {}", error.what()));
  }
}

std::string report_weights(const fs::path& dir, const ModelConfig& config, Report& report) {
  if (!fs::exists(dir / "model.safetensors") && !fs::exists(dir / "model.safetensors.index.json")) {
    report.row("weights", "weights", nullptr, "none here");
    return "";
  }
  const WeightFile weights = WeightFile::open(dir);
  const TensorTable table(weights);
  report.row("weights", "weights", table.facts(), weights.origin());
  report.row("fingerprint", "fingerprint", model_fingerprint(config, weights));
  const TensorShapes wanted = model_tensors(config);
  constexpr std::size_t kShown = 10;
  const std::vector<std::string> problems = misfits(wanted, weights);
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i) report.problem(problems[i]);
  if (problems.size() > kShown)
    report.problem(fmt::format("and {} tensors more do not fit", problems.size() - kShown));
  try {
    refuse_quantization_note(dir);
    refuse_unread(config, weights, /*compare_head=*/true);
  } catch (const Error& error) {
    report.problem(error.what());
  }
  const auto [harmless, wrong] = unread_tensors(config, weights, /*compare_head=*/false);
  std::vector<std::string> unused = harmless;
  unused.insert(unused.end(), wrong.begin(), wrong.end());
  if (!unused.empty())
    report.row("not used", "unused", unused,
               fmt::format("{} tensors, the first is {}", unused.size(), unused.front()));
  return table.text();
}

}  // namespace

Inspection inspect_model(const fs::path& path) {
  const ModelConfig config = read_model_config(path);
  Report report;
  report_config(config, report);
  std::string table;
  if (fs::is_directory(path)) {
    const auto tokenizer = report_tokenizer(path, config.vocab_size, report);
    report_stops(config, tokenizer.get(), report);
    report_template(path, report);
    report_memory(config, report);
    table = report_weights(path, config, report);
  } else {
    report_stops(config, nullptr, report);
    report_memory(config, report);
  }
  return {fmt::format("model {}\n", path.string()) + report.text() + table, report.facts,
          report.code()};
}

}  // namespace dex
