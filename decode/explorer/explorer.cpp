#include "decode/explorer/explorer.h"

#include <algorithm>
#include <numeric>

#include "common/base/stopwatch.h"
#include "decode/explorer/message.h"
#include "decode/prefill.h"

namespace dex {

Explorer::Explorer(const Model& model, const Adapter* adapter, LatticePolicy policy, int stage,
                   int threads)
    : model_(model),
      exit_(*model.head, adapter, model.depths.depth(stage)),
      policy_(policy),
      stage_(stage),
      pool_(threads) {}

DecodeResult Explorer::generate(std::span<const Token> prompt, const Limits& limits,
                                Transport& peers, const OnToken& on_token) {
  const Stopwatch watch;
  const int room = room_for(model_, prompt, limits);
  if (room == 0) return {.finish_reason = "length"};
  const StopRule stop{model_, limits, room};
  const int context_size = int(prompt.size()) - 1, last_position = context_size + room - 1;
  const int num_stages = model_.depths.num_stages();
  KvCache cache =
      model_.stages[stage_].make_cache(context_size + room + policy_.max_nodes(num_stages));

  std::vector<std::int32_t> context(context_size);
  std::iota(context.begin(), context.end(), 0);
  prefill(prompt.first(prompt.size() - 1), context, cache, peers);

  DecodeResult result;
  result.prefill_seconds = watch.seconds();
  Lattice lattice(num_stages, policy_, context_size, prompt.back(), last_position);
  for (bool done = false; !done;) {
    const std::vector<int> nodes(lattice.wave(stage_).begin(), lattice.wave(stage_).end());
    result.rounds = lattice.round();
    result.rows += std::int64_t(lattice.wave(0).size());
    result.peak_rows = std::max(result.peak_rows, int(lattice.wave(0).size()));

    at::Tensor rows = rows_in(lattice, peers);
    expand(lattice, rows, cache, peers);
    while (const auto committed = done ? std::nullopt : lattice.commit()) {
      result.tokens.push_back(*committed);
      if (result.tokens.size() == 1) result.first_token_seconds = watch.seconds();
      if (first() && on_token) on_token(*committed);
      done = stop.ends(*committed, result);
    }
    if (done) break;
    lattice.inject();
    rows_out(lattice, nodes, rows, peers);
  }
  result.total_seconds = watch.seconds();
  return result;
}

void Explorer::prefill(std::span<const Token> prompt, std::span<const std::int32_t> context,
                       KvCache& cache, Transport& peers) {
  for_each_chunk(int(prompt.size()), [&](int begin, int count) {
    const auto ids = prompt.subspan(begin, count);
    at::Tensor x = first() ? model_.embedding->rows(ids)
                           : unpack_rows(peers.receive(stage_ - 1), model_.config.hidden_size);
    model_.stages[stage_].forward(x, RowLayout::contiguous(begin, count, context), cache, pool_);
    if (last()) return;
    std::vector<std::int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    peers.send(pack_rows(x, all), stage_ + 1);
  });
}

at::Tensor Explorer::rows_in(const Lattice& lattice, Transport& peers) const {
  if (!first()) {
    // In the first rounds no row has come this far, and none is sent.
    if (lattice.round() == 1) return at::empty({0, model_.config.hidden_size});
    return unpack_rows(peers.receive(stage_ - 1), model_.config.hidden_size);
  }
  std::vector<Token> tokens;
  for (int id : lattice.wave(0)) tokens.push_back(lattice.node(id).token);
  return model_.embedding->rows(tokens);
}

void Explorer::expand(Lattice& lattice, at::Tensor& rows, KvCache& cache, Transport& peers) {
  const RowLayout layout = lattice.layout(stage_);
  model_.stages[stage_].forward(rows, layout, cache, pool_);
  const auto mine = exit_.read(rows, policy_.answer_width(model_.depths.num_stages()),
                               lattice.asked(stage_), layout.positions, pool_);
  const auto all = peers.all_gather(pack_answers(mine));
  for (int stage = 0; stage < peers.size(); ++stage)
    lattice.record(stage, unpack_answers(all[stage]));
}

void Explorer::rows_out(const Lattice& lattice, const std::vector<int>& nodes,
                        const at::Tensor& rows, Transport& peers) const {
  if (last()) return;
  std::vector<std::int64_t> survivors;
  for (int id : lattice.wave(stage_ + 1))
    survivors.push_back(std::find(nodes.begin(), nodes.end(), id) - nodes.begin());
  peers.send(pack_rows(rows, survivors), stage_ + 1);
}

}  // namespace dex
