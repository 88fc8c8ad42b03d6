// A stage on this machine's CPU, with the row-invariant kernels.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "common/model/exit.h"
#include "common/model/model.h"
#include "common/model/stage_engine.h"

namespace dex {

class CpuEngine final : public StageEngine {
 public:
  // The stages of `share`, as one, which `model` must hold; the exit is the one behind the last of
  // them. `adapter` may be null. Both must outlive the engine. Engines that work in turn may share
  // their threads.
  CpuEngine(const Model& model, StageShare share, const Adapter* adapter,
            std::shared_ptr<ThreadPool> pool);

  void begin(int rows, const Limits& limits) override;
  at::Tensor embed(std::span<const Token> ids) override;
  void forward(at::Tensor& x_RD, const RowLayout& layout) override;
  std::vector<ExitAnswer> read(const at::Tensor& h_RD, const ExitQuestion& question) override;
  at::Tensor exit_rows(const at::Tensor& h_RD, bool bare) override;
  std::vector<RowSlices> look(const at::Tensor& exit_rows_RD,
                              std::span<const ExitQuestion> questions, HeadShare share) override;
  std::vector<ExitAnswer> answers(std::span<const RowSlices> parts,
                                  const ExitQuestion& question) override;

 private:
  const Exit& exit() const;

  const Model& model_;
  StageShare share_;
  const Adapter* adapter_;
  std::optional<Exit> exit_;  // none where the model's share has no head
  std::shared_ptr<ThreadPool> pool_;
  std::vector<KvCache> caches_;  // by stage
};

}  // namespace dex
