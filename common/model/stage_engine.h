// One stage on one device. Plain decoding, explorers and `dex ead` advance rows through this, and
// know nothing of what computes. An engine owns its cache, buffers and threads.
#pragma once
#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/limits.h"
#include "common/explore/row_layout.h"
#include "common/model/exit_question.h"
#include "common/model/head_share.h"
#include "common/model/sampler.h"

namespace dex {

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

  // The same in three steps, where explorers share the head; the answers have the same bits.
  // 1. What this stage's exit hands to the head: (rows, hidden) f32.
  virtual at::Tensor exit_rows(const at::Tensor& h_RD, bool bare) = 0;
  // 2. What a share of the head finds in the rows of all exits, one exit after the other, as the
  // questions are: the share is read once. An element for each question.
  virtual std::vector<RowSlices> look(const at::Tensor& exit_rows_RD,
                                      std::span<const ExitQuestion> questions, HeadShare share) = 0;
  // 3. The answers to a question. `parts`: what all shares found, in the order of ids.
  virtual std::vector<ExitAnswer> answers(std::span<const RowSlices> parts,
                                          const ExitQuestion& question) = 0;
};

}  // namespace dex
