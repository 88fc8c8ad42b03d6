// One stage on one device. Plain decoding, explorers and `dex ead` advance rows through this, and
// know nothing of what computes. An engine owns its cache, buffers and threads.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/limits.h"
#include "common/explore/row_layout.h"

namespace dex {

// What an exit is asked about the rows that its stage has just advanced.
struct ExitQuestion {
  int width = 1;                          // best tokens wanted of each row
  std::vector<std::vector<Token>> asked;  // (rows): ids whose probability is wanted; or empty
  std::vector<std::int32_t> positions;    // (rows)
  bool bare = false;                      // read the hidden state without the exit's adapter
};

class StageEngine {
 public:
  virtual ~StageEngine() = default;

  // Makes room for a text: cache rows 0 .. rows-1, whose contents are lost, and the sampler that
  // its limits ask for.
  virtual void begin(int rows, const Limits& limits) = 0;

  // (ids, hidden) f32. Where the stage is the model's first; an id outside the table is
  // Error(usage).
  virtual at::Tensor embed(std::span<const Token> ids) = 0;

  // x_RD (rows, hidden) f32, in place, through the stage's layers. Writes the rows' K and V at
  // their cache rows. A row's bits depend on the row and the keys it sees alone.
  virtual void forward(at::Tensor& x_RD, const RowLayout& layout) = 0;

  // A row whose logits hold NaN is answered as that (ExitAnswer::numbers).
  virtual std::vector<ExitAnswer> read(const at::Tensor& h_RD, const ExitQuestion& question) = 0;
};

}  // namespace dex
