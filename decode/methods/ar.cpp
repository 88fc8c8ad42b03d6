#include "decode/methods/ar.h"

#include "common/model/cpu_engine.h"
#include "common/model/prefill.h"
#include "decode/methods/round_costs.h"
#include "decode/session.h"

namespace dex {
namespace {

class PlainDecoder final : public Decoder {
 public:
  PlainDecoder(const ModelInfo& model, std::unique_ptr<StageEngine> engine, const Clock& clock)
      : model_(model), engine_(std::move(engine)), clock_(clock) {}

  DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                        const OnToken& on_token) override {
    TextRun text(model_, prompt, limits, on_token, clock_);
    if (text.ended()) return text.finish();
    RowPool rows;
    const int context_size = int(prompt.size()) - 1;
    const auto context = rows.take(int(prompt.size()) + text.room());
    engine_->begin(context.size(), limits);

    each_prefill_chunk(std::span(context).first(context_size),
                       [&](const RowLayout& layout, int first, int count) {
                         at::Tensor x = engine_->embed(prompt.subspan(first, count));
                         engine_->forward(x, layout);
                       });
    text.prefilled();
    Token next = prompt.back();
    for (int position = context_size; !text.ended(); ++position) {
      text.begin_round(1);
      const ExitAnswer answer = answer_after(next, position, context);
      next = answer.reference;
      const int round = position - context_size + 1;
      text.emit({.token = next,
                 .hop = 1,
                 .round = round,
                 .gap = answer.gap,
                 .hash = answer.hash,
                 .numbers = answer.numbers});
    }
    return text.finish();
  }

 private:
  ExitAnswer answer_after(Token token, int position, std::span<const std::int32_t> context) {
    at::Tensor row = engine_->embed({&token, 1});
    const auto layout = RowLayout::contiguous(position, 1, context);
    engine_->forward(row, layout);
    return engine_->read(row, {.asked = {{}}, .positions = layout.positions}).front();
  }

  const ModelInfo& model_;
  std::unique_ptr<StageEngine> engine_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Decoder> plain_decoder(const Model& model, int threads) {
  static const RealClock clock;
  // All stages are one: nobody reads an exit between them.
  return plain_decoder(model,
                       std::make_unique<CpuEngine>(model, StageShare{0, model.depths.num_stages()},
                                                   nullptr, std::make_shared<ThreadPool>(threads)),
                       clock);
}

std::unique_ptr<Decoder> plain_decoder(const ModelInfo& model, std::unique_ptr<StageEngine> engine,
                                       const Clock& clock) {
  return std::make_unique<PlainDecoder>(model, std::move(engine), clock);
}

Method ar_method() { return ar_method(std::make_shared<const ExploreOptions>()); }

Method ar_method(std::shared_ptr<const ExploreOptions> options) {
  return {
      .name = "ar",
      .summary = "plain decoding",
      .is_reference = true,
      .make =
          [](const Session& session) { return plain_decoder(session.model(), session.threads()); },
      .estimate =
          [options](const Session& session) {
            return std::optional(
                estimated_seconds(*plain_costs(*options, session), 1, /*drafts=*/false));
          }};
}

}  // namespace dex
