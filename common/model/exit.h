// Exit k: the read-out after explorer E_k. Adapter (non-final depths that have one), final norm,
// head, sampler.
#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/model/adapter.h"
#include "common/model/exit_question.h"
#include "common/model/head.h"
#include "common/model/sampler.h"

namespace dex {

class Exit {
 public:
  // `adapter` may be null. Head and adapter must outlive the exit.
  Exit(const Head& head, const Adapter* adapter,
       std::shared_ptr<const Sampler> sampler = greedy_sampler());

  std::vector<ExitAnswer> read(const at::Tensor& h_RD, const ExitQuestion& question,
                               ThreadPool& pool) const;

  // The steps of it. What the head reads: adapter and final norm have acted, (rows, hidden) f32.
  at::Tensor exit_rows(const at::Tensor& h_RD, bool bare, ThreadPool& pool) const;
  // A share of the head over rows of any exits, as their questions follow each other: read once.
  std::vector<RowSlices> look(const at::Tensor& exit_rows_RD,
                              std::span<const ExitQuestion> questions, HeadShare share,
                              ThreadPool& pool) const;
  // `parts`: of all shares, in the order of ids.
  std::vector<ExitAnswer> answers(std::span<const RowSlices> parts, const ExitQuestion& question,
                                  ThreadPool& pool) const;

 private:
  const Head& head_;
  const Adapter* adapter_;
  std::shared_ptr<const Sampler> sampler_;
};

}  // namespace dex
