#include "decode/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/log.h"

namespace dex {

DecodeTally::DecodeTally(const DepthSet& depths) : depths_(depths), hits_(depths.num_stages()) {}

void DecodeTally::add(const DecodeResult& result) {
  ++texts_;
  tokens_ += std::int64_t(result.tokens.size());
  rounds_ += result.rounds;
  rows_ += result.rows;
  peak_rows_ = std::max(peak_rows_, result.peak_rows);
  decode_seconds_ += result.decode_seconds();
  prefill_seconds_ += result.prefill_seconds;
  first_token_seconds_ += result.first_token_seconds;
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    const CommittedToken& t = result.tokens[i];
    near_ties_ += t.gap < kNearTie;
    // nothing follows the last token, so it has no hop
    if (i + 1 == result.tokens.size()) continue;
    ++(t.branch == kDraft ? drafted_ : hits_[t.branch]);
    ++hopped_;
    hop_sum_ += t.hop;
  }
}

std::string DecodeTally::table() const {
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  std::string text =
      fmt::format("{} tokens in {} texts, {} rounds: {:.3f} rounds per token, mean hop {:.3f}\n",
                  tokens_, texts_, rounds_, share(double(rounds_), double(tokens_)),
                  share(double(hop_sum_), double(hopped_)));
  text += fmt::format(
      "rows into the first explorer: {:.2f} a round, at most {}; near ties (gap < {}): {}\n",
      share(double(rows_), double(rounds_)), peak_rows_, kNearTie, near_ties_);
  text += fmt::format("{:>6} {:>6} {:>16} {:>8}\n", "exit", "depth", "first proposed", "share");
  for (std::size_t k = 0; k < hits_.size(); ++k)
    text += fmt::format("{:>6} {:>6} {:>16} {:>7.1f}%\n", k, depths_.depth(int(k)), hits_[k],
                        100 * share(double(hits_[k]), double(hopped_)));
  if (drafted_ > 0)
    text += fmt::format("{:>13} {:>16} {:>7.1f}%\n", "drafts", drafted_,
                        100 * share(double(drafted_), double(hopped_)));
  return text;
}

nlohmann::json DecodeTally::json() const {
  return {{"texts", texts_},
          {"tokens", tokens_},
          {"rounds", rounds_},
          {"rows", rows_},
          {"peak_rows", peak_rows_},
          {"hits_per_exit", hits_},
          {"depths", depths_.depths()},
          {"mean_hop", hopped_ ? double(hop_sum_) / hopped_ : 0.0},
          {"near_ties", near_ties_},
          {"tokens_per_second", tokens_per_second()},
          {"first_token_seconds", first_token_seconds()},
          {"prefill_seconds", prefill_seconds_},
          {"decode_seconds", decode_seconds_}};
}

void show(const std::string& report) {
  if (!is_quiet()) std::fputs(("\n" + report).c_str(), stderr);
}

std::uint64_t hash_of(const std::vector<Token>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (Token id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((std::uint32_t(id) >> shift) & 0xff)) * 0x100000001b3u;
  return hash;
}

std::string speed_table(const DecodeTally& plain, const DecodeTally& other,
                        const std::string& name) {
  const int explorers = other.explorers();
  std::string text = fmt::format("{:<22} {:>10} {:>10} {:>22}\n", "decoder", "tokens/s", "relative",
                                 "time to first token");
  const auto line = [&](const std::string& name, const DecodeTally& tally) {
    text += fmt::format(
        "{:<22} {:>10.1f} {:>9.2f}x {:>20.3f} s\n", name, tally.tokens_per_second(),
        plain.tokens_per_second() > 0 ? tally.tokens_per_second() / plain.tokens_per_second() : 0.0,
        tally.first_token_seconds());
  };
  line("plain", plain);
  line(explorers > 1 ? fmt::format("{}, {} explorers", name, explorers) : name, other);
  if (explorers > 1 && other.tokens_per_second() < plain.tokens_per_second())
    text +=
        "All explorers here share one memory bus, and every round reads all weights whatever the "
        "number of explorers, so exploring\n"
        "is slower than plain decoding on this machine; it is faster where each explorer has a "
        "device of its own.\n";
  return text;
}

}  // namespace dex
