#include "data/prepare.h"

#include <unistd.h>

#include <cctype>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "common/digest.h"
#include "common/error.h"
#include "common/file.h"
#include "common/log.h"
#include "common/progress.h"
#include "data/conversation.h"
#include "data/shard_writer.h"
#include "data/sharegpt_reader.h"
#include "data/worker_pool.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRecordsInFlight = 16;  // per thread

struct Outcome {  // of one record: a pure function of it
  std::uint64_t number = 0;
  std::string id;
  Usable usable;  // without its messages
  Sample sample;  // empty when skipped
};

Outcome sample_of(const RawRecord& record, const PrepareOptions& options, const Render& render) {
  const Conversation conversation = parse_record(record, options.data);
  Outcome outcome{record.number, conversation.id, usable_messages(conversation), {}};
  if (outcome.usable.skip != Skip::none) return outcome;
  outcome.sample = render_sample(outcome.usable.messages, options.max_len, render);
  outcome.usable.messages.clear();
  if (!has_target(outcome.sample)) outcome.usable.skip = Skip::no_target;
  return outcome;
}

// The directory under its temporary name; gone unless published.
class Staging {
 public:
  explicit Staging(const fs::path& out)
      : out_(out), path_(out.string() + ".tmp") {
    std::error_code error;
    require(!fs::exists(out) || (fs::is_directory(out) && fs::is_empty(out, error)), ExitCode::usage,
            "{}: exists and is not an empty directory", out.string());
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
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// Takes outcomes in the order of the file: finds duplicates, chooses the split, counts, writes.
class Collector {
 public:
  Collector(const fs::path& dir, const PrepareOptions& options, std::int64_t vocabulary)
      : options_(options), writer_(dir, vocabulary), dir_(dir) {
    for (int i = 1; i < static_cast<int>(Skip::count); ++i) count(Skip(i), 0);
    for (int i = 0; i < static_cast<int>(Repair::count); ++i) count(Repair(i), 0);
  }

  void add(Outcome outcome) {
    counts_["read"] += 1;
    for (int i = 0; i < static_cast<int>(Repair::count); ++i)
      count(Repair(i),
            outcome.usable.skip == Skip::none && outcome.usable.repaired[static_cast<std::size_t>(i)]);
    if (outcome.usable.skip == Skip::none && !seen_.insert(fingerprint(outcome.sample)).second)
      outcome.usable.skip = Skip::duplicate;
    if (outcome.usable.skip != Skip::none) return skip(outcome);
    counts_["kept"] += 1;
    writer_.add(is_held_out(outcome) ? "held_out" : "train", outcome.sample);
  }

  void finish(ShardFacts facts, const SourceNote& source, const std::string& model) {
    require(counts_["kept"] > 0, ExitCode::usage, "{}: no sample is left of {} records",
            options_.data.string(), counts_["read"]);
    facts.counts = counts_;
    write_file(dir_ / "skipped.jsonl", skipped_);
    writer_.finish(facts, source, model);
  }

  std::int64_t kept() { return counts_["kept"]; }

 private:
  void count(Skip reason, std::int64_t by) { counts_[fmt::format("skipped.{}", name_of(reason))] += by; }
  void count(Repair repair, std::int64_t by) { counts_[fmt::format("repaired.{}", name_of(repair))] += by; }

  void skip(const Outcome& outcome) {
    count(outcome.usable.skip, 1);
    const nlohmann::json line = {
        {"record", outcome.number}, {"id", outcome.id}, {"reason", name_of(outcome.usable.skip)}};
    skipped_ += line.dump() + "\n";
  }

  // Half of a SHA-256 is enough to tell samples apart.
  static std::string fingerprint(const Sample& sample) {
    Sha256 digest;
    digest.add(std::as_bytes(std::span(sample.tokens)));
    return digest.hex().substr(0, 32);
  }

  // By chat, not by record: parts of one chat share text. Records without an id are chats of their own.
  bool is_held_out(const Outcome& outcome) const {
    const std::string chat = outcome.id.empty() ? fmt::format("record {}", outcome.number)
                                                : "id " + std::string(base_id(outcome.id));
    const double place =
        static_cast<double>(std::stoull(sha256_of(chat).substr(0, 12), nullptr, 16)) * 0x1p-48;
    return place < options_.held_out;
  }

  const PrepareOptions& options_;
  ShardWriter writer_;
  fs::path dir_;
  std::map<std::string, std::int64_t> counts_;
  std::unordered_set<std::string> seen_;
  std::string skipped_;
};

void read_all(SharegptReader& reader, const PrepareOptions& options, const Render& render,
              Collector& collector) {
  Progress progress("prepare", static_cast<std::int64_t>(reader.file_size()) / 1000, "kB");
  std::deque<std::future<Outcome>> pending;  // in the order of the file
  WorkerPool pool(options.threads);
  const std::size_t most = kRecordsInFlight * static_cast<std::size_t>(options.threads);
  std::uint64_t taken = 0;
  const auto next = [&] { return options.limit && taken >= *options.limit ? std::nullopt : reader.next(); };
  for (;;) {
    while (pending.size() < most) {
      auto record = next();
      if (!record) break;
      ++taken;
      pending.push_back(pool.submit(
          [record = std::move(*record), &options, &render] { return sample_of(record, options, render); }));
    }
    if (pending.empty()) break;
    collector.add(pending.front().get());
    pending.pop_front();
    progress.update(static_cast<std::int64_t>(reader.offset()) / 1000,
                    fmt::format("{} kept", collector.kept()));
  }
}

void judge_cut(const SharegptReader& reader, const PrepareOptions& options) {
  if (!reader.cut()) return;
  const Cut& cut = *reader.cut();
  const std::string what = fmt::format(
      "{}: cut: the file ends at byte {} before its array does, inside or before record {} (counting from 0) "
      "at byte {}",
      options.data.string(), cut.end, cut.record, cut.record_offset);
  require(options.allow_truncated, ExitCode::io, "{}; --allow-truncated takes the {} whole records", what,
          cut.record);
  require(cut.record > 0, ExitCode::io, "{}; no whole record", what);
  spdlog::warn("{}; the {} whole records are taken", what, cut.record);
}

// A file that is going to be refused should be refused before its text is tokenised: its last byte tells.
void refuse_cut_file(const PrepareOptions& options) {
  if (options.allow_truncated || options.limit) return;
  std::ifstream file(options.data, std::ios::binary | std::ios::ate);
  char last = ' ';
  for (auto at = static_cast<std::int64_t>(file.tellg()) - 1;
       at >= 0 && std::isspace(static_cast<unsigned char>(last)); --at)
    file.seekg(at).get(last);
  if (last == ']') return;
  SharegptReader reader(options.data);
  while (reader.next()) continue;
  judge_cut(reader, options);
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options, const Renderer& renderer) {
  require(options.max_len >= 2, ExitCode::usage, "--max-len {}, wanted at least 2", options.max_len);
  require(options.threads >= 1 && options.threads <= 1024, ExitCode::usage, "--threads {}, wanted 1 .. 1024", options.threads);
  require(options.held_out >= 0 && options.held_out < 1, ExitCode::usage,
          "--held-out {}, wanted 0 <= share < 1", options.held_out);
  require(!options.limit || *options.limit > 0, ExitCode::usage, "--limit 0, wanted at least 1");
  const auto begin = std::chrono::steady_clock::now();
  SharegptReader reader(options.data);
  refuse_cut_file(options);
  const fs::path out = without_slash(options.out);
  Staging staging(out);
  Collector collector(staging.path(), options, renderer.vocabulary);
  read_all(reader, options, renderer.render, collector);
  judge_cut(reader, options);

  SourceNote source{options.data.filename().string(), reader.offset(), reader.cut().has_value(), 0, 0};
  if (reader.cut()) {
    source.cut_record = reader.cut()->record;
    source.cut_offset = reader.cut()->record_offset;
  }
  ShardFacts facts{renderer.tokenizer_digest,
                   renderer.template_name,
                   renderer.template_digest,
                   reader.digest_so_far(),
                   renderer.vocabulary,
                   static_cast<std::int64_t>(options.max_len),
                   {}};
  collector.finish(facts, source, renderer.model);
  staging.publish();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {read_manifest(out), taken.count()};
}

}  // namespace dex
