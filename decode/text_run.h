// One text: its room, what ends it, what it took. The one place where a committed token becomes
// output, whoever decodes.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/explore/lattice.h"
#include "common/explore/limits.h"
#include "common/model/model.h"
#include "decode/clock.h"

namespace dex {

struct DecodeResult {
  std::vector<CommittedToken> tokens;  // a final end token included
  std::string finish_reason;           // "stop", "length" or "cancelled"
  std::optional<Token> stop_id;        // the end token, when one ended it
  int rounds = 0;                      // passes of every stage, prefill not counted
  std::int64_t rows = 0;               // rows that entered E_0, prefill not counted
  int peak_rows = 0;                   // most rows one explorer took in a round
  // From when the decoder takes the text up. The prefill ends when every stage has read the prompt
  // but its last token, whose pass gives the first token; the rest of the whole is decoding.
  double prefill_seconds = 0, first_token_seconds = 0, total_seconds = 0;

  double decode_seconds() const { return total_seconds - prefill_seconds; }

  std::vector<Token> ids() const;
  std::vector<Token> text_ids() const;  // without the end token
};

// Is given the tokens of the text, without the end token that ends it.
using OnToken = std::function<void(const CommittedToken&)>;

// Tokens that fit: the least of limits.max_tokens and the room the model's positions leave.
// Error(usage) when the prompt is empty, holds unknown ids or leaves no room for a token.
int room_for(const ModelInfo& model, std::span<const Token> prompt, const Limits& limits);

class TextRun {
 public:
  // `on_token` may be empty. Model, clock and callback must outlive it; times count from here.
  TextRun(const ModelInfo& model, std::span<const Token> prompt, const Limits& limits,
          const OnToken& on_token, const Clock& clock);

  int room() const { return room_; }
  bool ended() const { return ended_; }  // also when there is no room for a first token

  void prefilled();            // in every stage
  void begin_round(int rows);  // that enter E_0
  // In order; may end the text. NotNumbers, naming depth and position, where there is no token.
  void emit(const CommittedToken& token);
  void cancel();          // ends it as it stands
  DecodeResult finish();  // once, at the end

 private:
  bool is_stop(Token token) const;

  const ModelInfo& model_;
  Limits limits_;
  const OnToken& on_token_;
  const Clock& clock_;
  double start_;
  std::int64_t first_position_;  // of the row that gives the first token
  int room_;
  bool ended_;
  DecodeResult result_{.finish_reason = "length"};
};

}  // namespace dex
