// Earliest available depth (paper, Section 2): at which depths the candidate already is the final
// token, measured on the text that plain decoding gives.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/explore/readiness.h"
#include "common/model/stage_engine.h"
#include "decode/session.h"

namespace dex {

// One generated token, read at every asked depth.
struct EadRow {
  int text = 0;                      // index of the prompt
  std::int32_t position = 0;         // of the row whose exits answer
  Token token = 0;                   // the final depth's, unmasked
  float gap = 0;                     // of the final logits
  std::vector<Token> candidates;     // (depths) each exit's best token
  std::vector<float> probabilities;  // (depths) of the candidate, by its own exit
  Readiness ready;                   // exits count from 0
};

struct EadReading {  // all rows through one set of exits: bare hidden states, or through adapters
  std::string name;  // "no adapters" or "adapters"
  std::vector<EadRow> rows;
};

struct EadShares {
  std::vector<double> agreement, first, stable;  // (depths) share of tokens
  double mean_first = 0, mean_stable = 0;        // in layers, over generated tokens
  // eq. (13) over the asked depths: S_EAD when every layer is asked, else S_X
  double speedup = 0;
  double mean_hop = 0, mean_hop_decs = 0;  // branch + 1
  // that decoding these texts takes with --expand full
  std::int64_t texts = 0, rounds = 0;
};
EadShares shares_of(const EadReading& reading, const DepthSet& depths);

// Reads `prompt` + `generated` once, teacher-forced, and appends a row per generated token to every
// reading.
class EadReader {
 public:
  // Reads bare exits, and adapter exits too when the session has adapters.
  explicit EadReader(const Session& session);
  void read(int text, std::span<const Token> prompt, const DecodeResult& generated);
  const std::vector<EadReading>& readings() const { return readings_; }

 private:
  // by reading, row and exit
  using Answers = std::vector<std::vector<std::vector<ExitAnswer>>>;

  Answers ask_exits(at::Tensor x_RD, const RowLayout& layout, int skipped);
  void append(int text, std::span<const std::int32_t> positions, int answers_from,
              const Answers& answers, const DecodeResult& generated);

  const Session& session_;
  std::vector<std::unique_ptr<StageEngine>> engines_;  // by stage
  std::vector<EadReading> readings_;
};

}  // namespace dex
