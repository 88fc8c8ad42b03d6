#include "train/loop/pass_progress.h"

#include <utility>

#include "common/base/error.h"

namespace dex {

PassProgress::PassProgress(const TrainSetup& setup, std::string title, std::string work)
    : setup_(setup), title_(std::move(title)), work_(std::move(work)) {}

void PassProgress::operator()(std::int64_t done, std::int64_t of) {
  require(!setup_.stop_wanted(), ExitCode::temporary, "asked to stop during {}; --resume goes on",
          work_);
  if (!setup_.ranks.leads()) return;
  if (!progress_) progress_.emplace(title_, of, "passes");
  progress_->update(done);
}

}  // namespace dex
