#include <numeric>

#include "common/base/stopwatch.h"
#include "common/model/exit.h"
#include "decode/decoder.h"
#include "decode/prefill.h"

namespace dex {
namespace {

class PlainDecoder final : public Decoder {
 public:
  PlainDecoder(const Model& model, int threads)
      : model_(model), exit_(*model.head, nullptr, model.depths.num_layers()), pool_(threads) {}

  DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                        const OnToken& on_token) override {
    const Stopwatch watch;
    const int room = room_for(model_, prompt, limits);
    if (room == 0) return {.finish_reason = "length"};
    const StopRule stop{model_, limits, room};
    const int capacity = int(prompt.size()) + room;
    std::vector<std::int32_t> context(capacity);
    std::iota(context.begin(), context.end(), 0);
    std::vector<KvCache> caches;
    for (const Stage& stage : model_.stages) caches.push_back(stage.make_cache(capacity));

    int position = int(prompt.size()) - 1;
    for_each_chunk(position, [&](int first, int count) {
      forward(prompt.subspan(first, count), first, context, caches);
    });
    DecodeResult result;
    result.prefill_seconds = watch.seconds();
    for (Token next = prompt.back();; ++position) {
      const at::Tensor row = forward({&next, 1}, position, context, caches);
      const ExitAnswer answer = exit_.read(row, 1, {{}}, {position}, pool_).front();
      next = answer.tokens.front();
      result.tokens.push_back({next, 0, 1, ++result.rounds, answer.gap, answer.hash});
      if (result.rounds == 1) result.first_token_seconds = watch.seconds();
      if (on_token) on_token(result.tokens.back());
      if (stop.ends(result.tokens.back(), result)) break;
    }
    result.rows = result.rounds;
    result.peak_rows = 1;
    result.total_seconds = watch.seconds();
    return result;
  }

 private:
  at::Tensor forward(std::span<const Token> ids, int first, std::span<const std::int32_t> context,
                     std::vector<KvCache>& caches) {
    at::Tensor x = model_.embedding->rows(ids);
    const auto layout = RowLayout::contiguous(first, int(ids.size()), context);
    for (std::size_t k = 0; k < caches.size(); ++k)
      model_.stages[k].forward(x, layout, caches[k], pool_);
    return x;
  }

  const Model& model_;
  Exit exit_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Decoder> plain_decoder(const Model& model, int threads) {
  return std::make_unique<PlainDecoder>(model, threads);
}

}  // namespace dex
