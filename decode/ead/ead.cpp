#include "decode/ead/ead.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"
#include "common/model/exit.h"
#include "decode/prefill.h"

namespace dex {

EadReader::EadReader(const Session& session) : session_(session), pool_(session.threads()) {
  readings_.push_back({"no adapters", {}});
  if (session.has_adapters()) readings_.push_back({"adapters", {}});
}

void EadReader::read(int text, std::span<const Token> prompt, const DecodeResult& generated) {
  if (generated.tokens.empty()) return;
  std::vector<Token> ids(prompt.begin(), prompt.end());
  for (const auto& t : generated.tokens) ids.push_back(t.token);
  ids.pop_back();  // nothing is asked after the last token
  std::vector<std::int32_t> context(ids.size());
  std::iota(context.begin(), context.end(), 0);
  std::vector<KvCache> caches;
  for (const Stage& stage : session_.model().stages)
    caches.push_back(stage.make_cache(int(ids.size())));
  for_each_chunk(int(ids.size()), [&](int first, int count) {
    read_chunk(text, first, std::span(ids).subspan(first, count), int(prompt.size()) - 1, generated,
               context, caches);
  });
}

void EadReader::read_chunk(int text, int first, std::span<const Token> ids, int answers_from,
                           const DecodeResult& generated, std::span<const std::int32_t> context,
                           std::vector<KvCache>& caches) {
  const Model& model = session_.model();
  const int num_stages = model.depths.num_stages(), count = int(ids.size());
  const int skipped = std::clamp(answers_from - first, 0, count), asked_rows = count - skipped;
  std::vector<std::int32_t> positions(asked_rows);
  std::iota(positions.begin(), positions.end(), first + skipped);

  at::Tensor x = model.embedding->rows(ids);
  const auto layout = RowLayout::contiguous(first, count, context);
  // answers[reading][row][exit]
  std::vector<std::vector<std::vector<ExitAnswer>>> answers(readings_.size());
  for (auto& rows : answers) rows.resize(asked_rows);
  for (int k = 0; k < num_stages; ++k) {
    const auto stage = std::size_t(k);
    model.stages[stage].forward(x, layout, caches[stage], pool_);
    if (asked_rows == 0) continue;
    const at::Tensor rows = x.narrow(0, skipped, asked_rows).contiguous();
    const std::vector<std::vector<Token>> nothing(asked_rows);
    for (std::size_t r = 0; r < readings_.size(); ++r) {
      const Adapter* adapter = r == 0 ? nullptr : session_.adapters()[stage].get();
      if (r > 0 && !adapter) {  // the same exit as without adapters
        for (std::size_t i = 0; i < answers[r].size(); ++i)
          answers[r][i].push_back(answers[0][i].back());
        continue;
      }
      auto read = Exit(*model.head, adapter, model.depths.depth(k))
                      .read(rows, num_stages, nothing, positions, pool_);
      for (std::size_t i = 0; i < read.size(); ++i) answers[r][i].push_back(std::move(read[i]));
    }
  }

  for (std::size_t r = 0; r < readings_.size(); ++r)
    for (std::size_t i = 0; i < answers[r].size(); ++i) {
      const auto& exits = answers[r][i];
      const auto& committed = generated.tokens[positions[i] - answers_from];
      require(exits.back().hash == committed.hash, ExitCode::bug,
              "text {}, position {}: the teacher-forced pass gives other final logits ({:016x}) "
              "than decoding ({:016x})",
              text, positions[i], exits.back().hash, committed.hash);
      EadRow row{text, positions[i], committed.token, committed.gap, {}, {}, {}};
      std::vector<std::vector<Token>> ranked;
      for (const ExitAnswer& a : exits) {
        row.candidates.push_back(a.tokens.front());
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
