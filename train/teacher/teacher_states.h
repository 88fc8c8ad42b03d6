// The frozen model run over samples: the hidden states that the adapters learn from. Nothing is
// padded, each sample goes through the model alone, so its rows' bits do not depend on its company,
// and only the supervised rows come out. Ranks that share a model each run their own layers: rows
// move forward, final rows come back.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/model/model.h"
#include "data/sample.h"
#include "train/ranks/rank_messages.h"
#include "train/teacher/state_cache.h"

namespace dex {

struct HiddenRows {              // R supervised rows, D hidden
  std::vector<at::Tensor> h_RD;  // at each non-final depth of this rank
  at::Tensor final_RD;           // at depth L; until finish() on the last rank of a replica only
  std::int64_t tokens = 0;       // that went through the model
};

class TeacherStates {
 public:
  TeacherStates(const Model& model);  // NOLINT: a whole model is a source
  TeacherStates(const Model& model, RankMessages& ranks) : model_(model), ranks_(ranks) {}

  // A pass through this rank's layers. Several may be begun before the first is finished; all ranks
  // of a replica begin and finish the same passes in the same order.
  HiddenRows begin(std::span<const Sample> samples) const;
  HiddenRows finish(HiddenRows begun) const;  // waits for the final rows
  HiddenRows rows(std::span<const Sample> samples) const { return finish(begin(samples)); }

  // How many passes should be begun before the first is finished, so that no rank waits for
  // another.
  std::size_t ahead() const;

  // rows() of the passes of a range, in order and so far ahead.
  void each(IndexRange passes,
            const std::function<std::span<const Sample>(std::int64_t pass)>& samples_of,
            const std::function<void(std::int64_t pass, const HiddenRows& rows)>& use) const;

  const Model& model() const { return model_; }
  RankMessages& ranks() const { return ranks_; }

  // From now on samples that the cache knows need no pass, and others are added to it. For a rank
  // alone.
  void keep_in(StateCache& cache) { cache_ = &cache; }

 private:
  // loss rows at the end of each stage
  std::vector<at::Tensor> pass(const Sample& sample, at::Tensor& x_TD) const;
  std::vector<at::Tensor> cached_pass(const Sample& sample) const;

  const Model& model_;
  RankMessages& ranks_;
  StateCache* cache_ = nullptr;
};

// Targets that have a row before them: what a step's loss is divided by.
std::int64_t loss_rows(const Sample& sample);
// up to its last loss row: what goes through the model
std::int64_t pass_tokens(const Sample& sample);

}  // namespace dex
