#include "data/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "data/answers.h"
#include "data/conversation.h"
#include "data/parse_record.h"
#include "data/record_pipeline.h"
#include "data/shard_writer.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

struct Outcome {  // of one record: a pure function of it
  std::uint64_t number = 0, offset = 0, bytes = 0;
  std::string id, problem;
  Usable usable;  // without its messages
  Sample sample;  // empty when skipped
  std::vector<std::size_t> answer_rows;
};

// The conversation with its answers replaced, up to the last question that has one.
void regenerate(Outcome& outcome, const Answers& answers, std::size_t max_len,
                const Renderer& renderer) {
  Dialogue dialogue = replay(outcome.usable.messages, answers);
  outcome.answer_rows = std::move(dialogue.rows);
  if (dialogue.answered == 0)
    outcome.usable.skip = Skip::unanswered;
  else if (hides_reasoning(renderer, dialogue.messages))
    outcome.usable.skip = Skip::hidden_reasoning;
  if (outcome.usable.skip != Skip::none) return;
  const auto note = [&](Repair repair, bool done) {
    bool& noted = outcome.usable.repaired[std::size_t(repair)];
    noted = noted || done;
  };
  const bool open = dialogue.end == Dialogue::End::no_row;
  if (open) dialogue.messages.pop_back();
  note(Repair::open_question, open || dialogue.end == Dialogue::End::no_answer);
  const bool cut = dialogue.end == Dialogue::End::cut;
  note(Repair::cut_answer, cut);
  outcome.sample =
      (cut ? render_unfinished_sample : render_sample)(dialogue.messages, max_len, renderer.render);
}

bool has_id_from(const Sample& sample, std::int64_t vocabulary) {
  return std::any_of(sample.tokens.begin(), sample.tokens.end(),
                     [&](Token id) { return id >= vocabulary; });
}

Outcome sample_of(const RawRecord& record, const PrepareOptions& options, const Answers& answers,
                  const Renderer& renderer) {
  Conversation conversation = parse_record(record);
  Outcome outcome{record.number,
                  record.offset,
                  record.text.size(),
                  conversation.id,
                  std::move(conversation.problem),
                  usable_messages(conversation),
                  {},
                  {}};
  if (outcome.usable.skip != Skip::none) return outcome;
  const auto& messages = outcome.usable.messages;
  try {
    if (!options.answers.empty())
      regenerate(outcome, answers, options.max_len, renderer);
    else if (hides_reasoning(renderer, messages))
      outcome.usable.skip = Skip::hidden_reasoning;
    else
      outcome.sample = render_sample(messages, options.max_len, renderer.render);
  } catch (const ConversationRefused& refused) {
    outcome.usable.skip = skip_of(refused);
  }
  outcome.usable.messages.clear();
  if (outcome.usable.skip == Skip::none && !has_target(outcome.sample))
    outcome.usable.skip = Skip::no_target;
  else if (outcome.usable.skip == Skip::none && has_id_from(outcome.sample, renderer.vocabulary))
    outcome.usable.skip = Skip::past_rows;
  return outcome;
}

// The directory under its temporary name; gone unless published.
class Staging {
 public:
  explicit Staging(const fs::path& out) : out_(out), path_(out.string() + ".tmp") {
    std::error_code error;
    require(!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out, error)),
            ExitCode::usage, "{}: exists and is not an empty directory", out.string());
    fs::remove_all(path_, error);  // left by a killed run
    make_directory(path_);
  }
  ~Staging() {
    std::error_code ignored;
    if (!published_) fs::remove_all(path_, ignored);
  }
  void publish() {
    sync_directory(path_);
    rename_durably(path_, out_);
    published_ = true;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path out_, path_;
  bool published_ = false;
};

// "--out runs/data/" names the directory itself.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Takes outcomes in the order of the file: finds duplicates, chooses the split, counts, writes.
class Collector {
 public:
  Collector(const fs::path& dir, const PrepareOptions& options, std::int64_t vocabulary)
      : options_(options), writer_(dir, vocabulary), dir_(dir) {
    // what only new answers can bring is counted only with them
    const bool fresh = !options.answers.empty();
    for (int i = 1; i < int(fresh ? Skip::nothing_to_ask : Skip::unanswered); ++i)
      count(Skip(i), 0);
    for (int i = 0; i < int(fresh ? Repair::count : Repair::cut_answer); ++i) count(Repair(i), 0);
  }

  void add(Outcome outcome) {
    counts_["read"] += 1;
    for (int i = 0; i < int(Repair::count); ++i)
      if (outcome.usable.skip == Skip::none && outcome.usable.repaired[i]) count(Repair(i), 1);
    if (outcome.usable.skip == Skip::none && !seen_.insert(fingerprint(outcome.sample)).second)
      outcome.usable.skip = Skip::duplicate;
    if (outcome.usable.skip != Skip::none) return skip(outcome);
    counts_["kept"] += 1;
    writer_.add(is_held_out(outcome) ? "held_out" : "train", outcome.sample);
  }

  void finish(ShardFacts facts, const SourceNote& source, const std::string& model) {
    const std::string skipped = skipped_text(counts_);
    require(counts_["kept"] > 0, ExitCode::usage, "{}: no sample is left of {} records{}",
            options_.data.string(), counts_["read"],
            skipped.empty() ? "" : "; skipped: " + skipped);
    facts.counts = counts_;
    write_file(dir_ / "skipped.jsonl", skipped_);
    writer_.finish(facts, source, model);
  }

  std::int64_t kept() { return counts_["kept"]; }

 private:
  void count(Skip reason, std::int64_t by) {
    counts_[fmt::format("skipped.{}", name_of(reason))] += by;
  }
  void count(Repair repair, std::int64_t by) {
    counts_[fmt::format("repaired.{}", name_of(repair))] += by;
  }

  void skip(const Outcome& outcome) {
    count(outcome.usable.skip, 1);
    nlohmann::json line = {
        {"record", outcome.number}, {"id", outcome.id}, {"reason", name_of(outcome.usable.skip)}};
    if (!outcome.problem.empty()) {
      line["offset"] = outcome.offset;
      line["bytes"] = outcome.bytes;
      line["problem"] = outcome.problem;
    }
    if (outcome.usable.skip == Skip::not_json) warn_once(outcome);
    skipped_ += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  void warn_once(const Outcome& outcome) {
    if (counts_["skipped.not_json"] > 1) return;
    spdlog::warn("{}: record {} at byte {} is skipped: {}", options_.data.string(), outcome.number,
                 outcome.offset, outcome.problem);
  }

  // Half of a SHA-256 is enough to tell samples apart.
  static std::string fingerprint(const Sample& sample) {
    Sha256 digest;
    digest.add(std::as_bytes(std::span(sample.tokens)));
    return digest.hex().substr(0, 32);
  }

  // By chat, not by record: parts of one chat share text. Records without an id are chats of their
  // own.
  bool is_held_out(const Outcome& outcome) const {
    const std::string chat = outcome.id.empty() ? fmt::format("record {}", outcome.number)
                                                : "id " + std::string(base_id(outcome.id));
    const double place = double(std::stoull(sha256_of(chat).substr(0, 12), nullptr, 16)) * 0x1p-48;
    return place < options_.held_out;
  }

  const PrepareOptions& options_;
  ShardWriter writer_;
  fs::path dir_;
  std::map<std::string, std::int64_t> counts_;
  std::unordered_set<std::string> seen_;
  std::string skipped_;
};

}  // namespace

void check(const PrepareOptions& options) {
  require(options.max_len >= 2, ExitCode::usage, "--max-len {}, wanted at least 2",
          options.max_len);
  require(options.threads >= 1 && options.threads <= 1024, ExitCode::usage,
          "--threads {}, wanted 1 .. 1024", options.threads);
  require(options.held_out >= 0 && options.held_out < 1, ExitCode::usage,
          "--held-out {}, wanted 0 <= share < 1", options.held_out);
  require(!options.limit || *options.limit > 0, ExitCode::usage, "--limit 0, wanted at least 1");
}

std::size_t sample_length(std::optional<std::size_t> asked, std::int64_t positions) {
  const std::size_t standard = PrepareOptions().max_len, length = asked.value_or(standard);
  if (positions <= 0 || length <= std::size_t(positions)) return length;
  require(!asked, ExitCode::usage,
          "--max-len {}, but the model has {} positions (max_position_embeddings of its "
          "config.json); wanted at most that",
          length, positions);
  spdlog::info("--max-len {}: the model has no more positions (the default is {})", positions,
               standard);
  return std::size_t(positions);
}

bool hides_reasoning(const Renderer& renderer, std::span<const Message> messages) {
  return !renderer.shows_reasoning &&
         std::any_of(messages.begin(), messages.end(),
                     [](const Message& message) { return !is_blank(message.reasoning); });
}

PrepareReport prepare(const PrepareOptions& options, const Renderer& renderer) {
  check(options);
  const auto begin = std::chrono::steady_clock::now();
  SharegptReader reader(options.data);
  refuse_cut_file(options);
  const Answers answers(options.answers);
  UsedRows used(answers);
  const fs::path out = without_slash(options.out);
  Staging staging(out);
  Collector collector(staging.path(), options, renderer.vocabulary);
  each_record<Outcome>(
      reader, options,
      [&](const RawRecord& record) { return sample_of(record, options, answers, renderer); },
      [&](Outcome outcome) {
        used.note(outcome.answer_rows);
        collector.add(std::move(outcome));
        return fmt::format("{} kept", collector.kept());
      });
  used.require_all(options.data);

  SourceNote source{options.data.filename().string(), reader.offset(), reader.cut().has_value(), 0,
                    0};
  if (reader.cut()) {
    source.cut_record = reader.cut()->record;
    source.cut_offset = reader.cut()->record_offset;
  }
  ShardFacts facts{renderer.tokenizer_digest,
                   renderer.template_name,
                   renderer.template_digest,
                   reader.digest_so_far(),
                   renderer.vocabulary,
                   std::int64_t(options.max_len),
                   {}};
  collector.finish(facts, source, renderer.model);
  staging.publish();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {read_manifest(out), taken.count()};
}

}  // namespace dex
