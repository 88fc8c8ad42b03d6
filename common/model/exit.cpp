#include "common/model/exit.h"

#include <utility>

#include "common/base/error.h"

namespace dex {

Exit::Exit(const Head& head, const Adapter* adapter, std::shared_ptr<const Sampler> sampler)
    : head_(head), adapter_(adapter), sampler_(std::move(sampler)) {}

std::vector<ExitAnswer> Exit::read(const at::Tensor& h, const ExitQuestion& question,
                                   ThreadPool& pool) const {
  return answers(look(exit_rows(h, question.bare, pool), {&question, 1},
                      HeadShare::whole(head_.vocab()), pool),
                 question, pool);
}

at::Tensor Exit::exit_rows(const at::Tensor& h, bool bare, ThreadPool& pool) const {
  if (h.size(0) == 0) return h;
  return head_.norm(adapter_ && !bare ? adapter_->induce(h, pool) : h);
}

std::vector<RowSlices> Exit::look(const at::Tensor& rows, std::span<const ExitQuestion> questions,
                                  HeadShare share, ThreadPool& pool) const {
  require(rows.size(0) == rows_of(questions), ExitCode::bug,
          "the head reads {} rows, questions are about {}", rows.size(0), rows_of(questions));
  const at::Tensor logits = head_.logits(rows, share, pool);
  const float* at = logits.data_ptr<float>();
  std::vector<RowSlices> found;
  for (const ExitQuestion& question : questions) {
    found.push_back(sampler_->look({at, question.rows(), share}, question, pool));
    at += std::ptrdiff_t{question.rows()} * share.ids;
  }
  return found;
}

std::vector<ExitAnswer> Exit::answers(std::span<const RowSlices> parts,
                                      const ExitQuestion& question, ThreadPool& pool) const {
  return sampler_->answers(parts, question, {head_.vocab(), head_.holes()}, pool);
}

}  // namespace dex
