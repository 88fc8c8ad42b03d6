// Decoders behind one interface: the same prompt gives the same tokens from each of them.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/token.h"
#include "common/explore/lattice.h"
#include "common/model/adapter.h"
#include "common/model/model.h"

namespace dex {

struct Limits {
  int max_tokens = 128;      // 0 gives an empty result
  bool ignore_stop = false;  // measurements: go on past the model's end tokens
};

struct DecodeResult {
  std::vector<CommittedToken> tokens;  // a final end token included
  std::string finish_reason;           // "stop" or "length"
  std::optional<Token> stop_id;        // the end token, when one ended it
  int rounds = 0;                      // passes of every stage, prefill not counted
  std::int64_t rows = 0;               // rows that entered E_0, prefill not counted
  int peak_rows = 0;                   // most rows one explorer took in a round
  double prefill_seconds = 0, first_token_seconds = 0, total_seconds = 0;

  std::vector<Token> ids() const;
  std::vector<Token> text_ids() const;  // without the end token
};

using OnToken = std::function<void(const CommittedToken&)>;

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Error(usage) when the prompt is empty, holds unknown ids or leaves no room for a token.
  // `on_token` may be empty; it is called in order, on one thread, before generate returns.
  virtual DecodeResult generate(std::span<const Token> prompt, const Limits& limits,
                                const OnToken& on_token) = 0;
};

// Exit adapters by stage; null where a depth has none.
using Adapters = std::vector<std::unique_ptr<Adapter>>;

// Plain decoding: one row through every layer for each token. The reference that all others are
// compared with.
std::unique_ptr<Decoder> plain_decoder(const Model& model, int threads);

// Depth exploration (paper, Algorithm 1): a thread per explorer, each with a pool of `threads` of
// its own. `cores` binds explorer k to core cores[k % size]; empty leaves it to the system.
std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores);

// Tokens that fit: the least of limits.max_tokens and the room the model's positions leave. Checks
// the prompt.
int room_for(const Model& model, std::span<const Token> prompt, const Limits& limits);

// Whether a committed token ends the text, with the reason.
struct StopRule {
  const Model& model;
  const Limits& limits;
  int room;
  // result holds `token` already
  bool ends(const CommittedToken& token, DecodeResult& result) const;
};

}  // namespace dex
