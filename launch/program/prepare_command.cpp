#include "launch/program/prepare_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/allowed_cores.h"
#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/peak_memory.h"
#include "common/model/config.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "data/prepare.h"
#include "data/questions.h"
#include "launch/program/template_options.h"

namespace dex {
namespace {

struct Flags {
  PrepareOptions options;
  QuestionOptions questions;
  std::string model, template_choice;
  TemplateOptions rendering;
  std::uint64_t limit = 0;
  std::optional<std::size_t> max_len;
};

nlohmann::json totals_json(const std::vector<ShardFile>& files) {
  const SplitTotals t = totals_of(files);
  return {{"samples", t.samples},
          {"tokens", t.tokens},
          {"supervised", t.supervised},
          {"shards", t.shards}};
}

nlohmann::json summary_of(const PrepareReport& report, const PrepareOptions& options) {
  const Manifest& manifest = report.manifest;
  nlohmann::json summary = {{"command", "prepare"},
                            {"out", options.out.string()},
                            {"counts", manifest.facts.counts},
                            {"train", totals_json(manifest.splits.at("train"))},
                            {"held_out", totals_json(manifest.splits.at("held_out"))},
                            {"data_digest", manifest.data_digest()},
                            {"bytes", manifest.source.bytes},
                            {"seconds", report.seconds},
                            {"mb_per_second", double(manifest.source.bytes) / 1e6 / report.seconds},
                            {"peak_rss_mb", double(peak_memory_bytes()) / 1e6},
                            {"truncated", nullptr}};
  if (manifest.source.cut)
    summary["truncated"] = {{"record", manifest.source.cut_record},
                            {"offset", manifest.source.cut_offset}};
  return summary;
}

void log_counts(const std::map<std::string, std::int64_t>& counts, const char* kept) {
  const std::string skipped = skipped_text(counts);
  spdlog::info("{} records read = {} {}, {}", counts.at("read"), counts.at("kept"), kept,
               skipped.empty() ? "none skipped" : skipped);
}

int ask(const Flags& flags, const Renderer& renderer) {
  const QuestionReport report = write_questions(flags.options, flags.questions, renderer);
  log_counts(report.counts, "asked");
  const nlohmann::json summary = {{"command", "prepare"},
                                  {"questions", flags.questions.out.string()},
                                  {"counts", report.counts}};
  fmt::print("{}\n", summary.dump());
  return 0;
}

// Ids that samples may have: the tokenizer's that the model, where its config.json is there, has a
// row for.
std::int64_t vocabulary_of(const std::filesystem::path& model,
                           const std::optional<ModelConfig>& config, const Tokenizer& tokenizer) {
  const std::int64_t ids = tokenizer.size();
  const std::int64_t rows = config ? config->vocab_size : ids;
  if (ids > rows)
    spdlog::warn(
        "{}: the tokenizer has {} ids, the embedding {} rows; records with an id from {} "
        "on are skipped",
        model.string(), ids, rows, rows);
  return std::min(ids, rows);
}

std::optional<ModelConfig> config_of(const std::filesystem::path& model) {
  if (!std::filesystem::exists(model / "config.json")) return std::nullopt;
  return read_model_config(model);
}

int run(Flags& flags) {
  PrepareOptions& options = flags.options;
  require(options.out.empty() != flags.questions.out.empty(), ExitCode::usage,
          "{} of --out and --write-prompts are given, wanted one",
          options.out.empty() ? "none" : "both");
  const auto config = config_of(flags.model);
  options.max_len = sample_length(flags.max_len, config ? config->max_positions : 0);
  const auto tokenizer = load_tokenizer(flags.model);
  const auto chat = ChatTemplate::chosen(flags.template_choice, flags.model, flags.rendering);
  const Renderer renderer{
      [&](std::span<const Message> messages) { return chat.render(messages, *tokenizer, false); },
      std::filesystem::absolute(flags.model).lexically_normal().string(),
      tokenizer->digest(),
      chat.name(),
      chat.digest(),
      vocabulary_of(flags.model, config, *tokenizer),
      chat.shows_reasoning()};
  spdlog::info("prepare: template {}, vocabulary {}, {} threads", chat.name(), renderer.vocabulary,
               options.threads);
  if (!flags.questions.out.empty()) return ask(flags, renderer);
  const PrepareReport report = prepare(options, renderer);
  log_counts(report.manifest.facts.counts, "kept");
  fmt::print("{}\n", summary_of(report, options).dump());
  return 0;
}

}  // namespace

void add_prepare_command(CLI::App& program, std::function<int()>& chosen) {
  auto flags = std::make_shared<Flags>();
  PrepareOptions& options = flags->options;
  options.threads = allowed_cores();
  CLI::App* command =
      program.add_subcommand("prepare", "Turn a ShareGPT file into token shards for training");
  command->add_option("--model", flags->model, "Model directory; its tokenizer is used")
      ->required();
  command
      ->add_option("--data", options.data,
                   "ShareGPT file: a JSON array of conversations, or one a line")
      ->required();
  command->add_option("--out", options.out, "Directory to make; absent or empty before");
  add_template_options(*command, flags->template_choice, flags->rendering);
  command
      ->add_option("--max-len", flags->max_len,
                   fmt::format("Tokens a sample is cut to [{}, or the model's positions where they "
                               "are fewer]",
                               options.max_len))
      ->check(CLI::Range(2, 1 << 20));
  command->add_flag("--allow-truncated", options.allow_truncated,
                    "Take the whole records of a cut file");
  CLI::Option* limit =
      command->add_option("--limit", flags->limit, "Look at the first N records only")
          ->check(CLI::Range(1, 2147483647));
  command->add_option("--held-out", options.held_out, "Share of chats kept for evaluation")
      ->capture_default_str();
  command->add_option(
      "--answers", options.answers,
      "Answers of a model to take the place of the conversations' own: dex decode --output");
  command->add_option(
      "--write-prompts", flags->questions.out,
      "Instead of --out: write the next question of every conversation as a job line");
  command
      ->add_option("--turns", flags->questions.turns,
                   "--write-prompts: questions of a conversation at most (0: all)")
      ->capture_default_str();
  command
      ->add_option("--answer-tokens", flags->questions.answer_tokens,
                   "--write-prompts: tokens of an answer at most")
      ->capture_default_str();
  command
      ->add_option("--threads", options.threads,
                   "Tokenising threads; any number gives the same bytes")
      ->capture_default_str();
  command->callback([flags, limit, command, &chosen] {
    if (limit->count() > 0) flags->options.limit = flags->limit;
    chosen = [flags, command] {
      spdlog::info("prepare {}", command_line_of(*command));
      return run(*flags);
    };
  });
}

}  // namespace dex
