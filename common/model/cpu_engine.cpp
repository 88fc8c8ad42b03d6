#include "common/model/cpu_engine.h"

#include <utility>

#include "common/base/error.h"

namespace dex {

CpuEngine::CpuEngine(const Model& model, StageShare share, const Adapter* adapter,
                     std::shared_ptr<ThreadPool> pool)
    : model_(model), share_(share), adapter_(adapter), pool_(std::move(pool)) {}

void CpuEngine::begin(int rows, const Limits& limits) {
  if (model_.head) exit_.emplace(*model_.head, adapter_, sampler_for(limits));
  caches_.clear();
  for (int k = share_.begin; k < share_.end; ++k)
    caches_.push_back(model_.stage(k).make_cache(rows));
}

at::Tensor CpuEngine::embed(std::span<const Token> ids) {
  require(model_.embedding != nullptr, ExitCode::bug, "stage {} has no embedding", share_.begin);
  return model_.embedding->rows(ids);
}

void CpuEngine::forward(at::Tensor& x, const RowLayout& layout) {
  for (int k = share_.begin; k < share_.end; ++k)
    model_.stage(k).forward(x, layout, caches_[k - share_.begin], *pool_);
}

std::vector<ExitAnswer> CpuEngine::read(const at::Tensor& h, const ExitQuestion& question) {
  return exit().read(h, question, *pool_);
}

at::Tensor CpuEngine::exit_rows(const at::Tensor& h, bool bare) {
  return exit().exit_rows(h, bare, *pool_);
}

std::vector<RowSlices> CpuEngine::look(const at::Tensor& exit_rows,
                                       std::span<const ExitQuestion> questions, HeadShare share) {
  return exit().look(exit_rows, questions, share, *pool_);
}

std::vector<ExitAnswer> CpuEngine::answers(std::span<const RowSlices> parts,
                                           const ExitQuestion& question) {
  return exit().answers(parts, question, *pool_);
}

const Exit& CpuEngine::exit() const {
  require(exit_.has_value(), ExitCode::bug, "stage {} has no head", share_.end - 1);
  return *exit_;
}

}  // namespace dex
