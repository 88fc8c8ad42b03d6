#include "decode/ead/ead.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"
#include "common/explore/row_pool.h"
#include "common/model/cpu_engine.h"
#include "common/model/not_numbers.h"
#include "common/model/prefill.h"

namespace dex {

EadReader::EadReader(const Session& session) : session_(session) {
  readings_.push_back({"no adapters", {}});
  if (session.has_adapters()) readings_.push_back({"adapters", {}});
  const auto pool = std::make_shared<ThreadPool>(session.threads());
  const Adapters& adapters = session.adapters();
  for (int k = 0; k < session.model().depths.num_stages(); ++k)
    engines_.push_back(std::make_unique<CpuEngine>(session.model(), StageShare{k, k + 1},
                                                   adapters.empty() ? nullptr : adapters[k].get(),
                                                   pool));
}

void EadReader::read(int text, std::span<const Token> prompt, const DecodeResult& generated) {
  if (generated.tokens.empty()) return;
  std::vector<Token> ids(prompt.begin(), prompt.end());
  for (const auto& t : generated.tokens) ids.push_back(t.token);
  ids.pop_back();  // nothing is asked after the last token
  const int answers_from = int(prompt.size()) - 1;
  const auto context = RowPool().take(ids.size());
  for (const auto& engine : engines_) engine->begin(ids.size(), {});
  each_prefill_chunk(context, [&](const RowLayout& layout, int first, int count) {
    const int skipped = std::clamp(answers_from - first, 0, count);
    const auto answers =
        ask_exits(engines_.front()->embed(std::span(ids).subspan(first, count)), layout, skipped);
    append(text, std::span(layout.positions).subspan(skipped), answers_from, answers, generated);
  });
}

// The rows from `skipped` on, at every exit.
EadReader::Answers EadReader::ask_exits(at::Tensor x, const RowLayout& layout, int skipped) {
  const int rows = layout.rows() - skipped;
  Answers answers(readings_.size());
  for (auto& by_row : answers) by_row.resize(rows);
  ExitQuestion question{.width = int(engines_.size()),
                        .asked = std::vector<std::vector<Token>>(rows),
                        .positions = {layout.positions.begin() + skipped, layout.positions.end()}};
  for (std::size_t k = 0; k < engines_.size(); ++k) {
    StageEngine& engine = *engines_[k];
    engine.forward(x, layout);
    if (rows == 0) continue;
    const at::Tensor h = x.narrow(0, skipped, rows).contiguous();
    std::vector<ExitAnswer> read;
    for (std::size_t r = 0; r < readings_.size(); ++r) {
      question.bare = r == 0;
      // The last exit has no adapter: both readings are one.
      if (r == 0 || k + 1 < engines_.size()) read = engine.read(h, question);
      for (int i = 0; i < rows; ++i) {
        require_numbers(read[i].numbers, session_.model().depths.depth(int(k)),
                        question.positions[i]);
        answers[r][i].push_back(read[i]);
      }
    }
  }
  return answers;
}

void EadReader::append(int text, std::span<const std::int32_t> positions, int answers_from,
                       const Answers& answers, const DecodeResult& generated) {
  for (std::size_t r = 0; r < readings_.size(); ++r)
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto& exits = answers[r][i];
      const auto& committed = generated.tokens[positions[i] - answers_from];
      require(exits.back().hash == committed.hash, ExitCode::bug,
              "text {}, position {}: the teacher-forced pass gives other final logits ({:016x}) "
              "than decoding ({:016x})",
              text, positions[i], exits.back().hash, committed.hash);
      EadRow row{text, positions[i], committed.token, committed.gap, {}, {}, {}};
      std::vector<std::vector<Token>> ranked;
      for (const ExitAnswer& a : exits) {
        row.candidates.push_back(a.reference);
        row.probabilities.push_back(a.probabilities.front());
        ranked.push_back(a.tokens);
      }
      row.ready = readiness(ranked);
      readings_[r].rows.push_back(std::move(row));
    }
}

EadShares shares_of(const EadReading& reading, const DepthSet& depths) {
  const auto K = std::size_t(depths.num_stages());
  EadShares s{std::vector<double>(K), std::vector<double>(K), std::vector<double>(K)};
  const double n = double(std::max<std::size_t>(1, reading.rows.size()));
  RoundCount rounds(depths.num_stages());
  for (std::size_t i = 0; i < reading.rows.size(); ++i) {
    const EadRow& row = reading.rows[i];
    rounds.add(row.ready, i + 1 == reading.rows.size() || reading.rows[i + 1].text != row.text);
    for (std::size_t k = 0; k < K; ++k) s.agreement[k] += (row.candidates[k] == row.token) / n;
    s.first[row.ready.first] += 1 / n;
    s.stable[row.ready.stable] += 1 / n;
    s.mean_first += depths.depth(row.ready.first) / n;
    s.mean_stable += depths.depth(row.ready.stable) / n;
    s.mean_hop += (row.ready.first + 1) / n;
    s.mean_hop_decs += (row.ready.decs_branch + 1) / n;
  }
  s.texts = rounds.texts();
  s.rounds = rounds.rounds();
  s.speedup = s.mean_stable > 0 ? depths.num_layers() / s.mean_stable : 1;
  return s;
}

}  // namespace dex
