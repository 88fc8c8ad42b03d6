#include "decode/text_run.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/model/not_numbers.h"

namespace dex {

std::vector<Token> DecodeResult::ids() const {
  std::vector<Token> ids;
  for (const auto& t : tokens) ids.push_back(t.token);
  return ids;
}

std::vector<Token> DecodeResult::text_ids() const {
  auto ids = this->ids();
  if (stop_id) ids.pop_back();
  return ids;
}

int room_for(const ModelInfo& model, std::span<const Token> prompt, const Limits& limits) {
  require(!prompt.empty(), ExitCode::usage, "the prompt has no tokens, wanted at least 1");
  require(limits.max_tokens >= 0, ExitCode::usage, "max_tokens is {}, wanted 0 or more",
          limits.max_tokens);
  const std::int64_t size = prompt.size(), positions = model.config.max_positions;
  require(size < positions, ExitCode::usage,
          "the prompt has {} tokens, wanted fewer than the model's {} positions", size, positions);
  const std::int64_t known = model.config.vocab_size;
  for (Token id : prompt)
    require(id >= 0 && id < known, ExitCode::usage,
            "token id {} is outside the model's vocabulary of {}", id, known);
  return std::min<std::int64_t>(limits.max_tokens, positions - size);
}

TextRun::TextRun(const ModelInfo& model, std::span<const Token> prompt, const Limits& limits,
                 const OnToken& on_token, const Clock& clock)
    : model_(model),
      limits_(limits),
      on_token_(on_token),
      clock_(clock),
      start_(clock.seconds()),
      first_position_(std::int64_t(prompt.size()) - 1),
      room_(room_for(model, prompt, limits)),
      ended_(room_ == 0) {}

void TextRun::prefilled() { result_.prefill_seconds = clock_.seconds() - start_; }

void TextRun::begin_round(int rows) {
  ++result_.rounds;
  result_.rows += rows;
  result_.peak_rows = std::max(result_.peak_rows, rows);
}

void TextRun::emit(const CommittedToken& token) {
  require_numbers(token.numbers, model_.config.num_layers,
                  first_position_ + std::int64_t(result_.tokens.size()));
  result_.tokens.push_back(token);
  if (result_.tokens.size() == 1) result_.first_token_seconds = clock_.seconds() - start_;
  if (is_stop(token.token)) {
    result_.finish_reason = "stop";
    result_.stop_id = token.token;
    ended_ = true;
  } else if (on_token_) {
    on_token_(token);
  }
  ended_ = ended_ || int(result_.tokens.size()) == room_;
}

bool TextRun::is_stop(Token token) const {
  const auto& ids = model_.stop_ids;
  return !limits_.ignore_stop && std::binary_search(ids.begin(), ids.end(), token);
}

void TextRun::cancel() {
  result_.finish_reason = "cancelled";
  ended_ = true;
}

DecodeResult TextRun::finish() {
  if (room_ > 0) result_.total_seconds = clock_.seconds() - start_;
  return std::move(result_);
}

}  // namespace dex
