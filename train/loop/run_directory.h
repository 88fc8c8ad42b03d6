// The directory of a run, --out: its checkpoints, its adapters at the end and the best ones so far.
// The leading rank writes it, all read checkpoints there. All ranks call what is not said to be of
// the leading one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/directory_lock.h"
#include "train/loop/best_adapters.h"
#include "train/loop/learner.h"
#include "train/loop/train_setup.h"

namespace dex {

class RunDirectory {
 public:
  explicit RunDirectory(TrainSetup& setup) : setup_(setup) {}

  // Keeps the directory for this run, removes an earlier run if that was asked for, and looks for
  // the newest whole checkpoint: its name, or "" where there is none. Error(temporary) while
  // another run has the directory, Error(usage) when there are checkpoints and the run was not
  // asked to go on, Error(io) with the reason of each when it was and none is whole.
  std::string open();
  void load(const std::string& checkpoint, Learner& learner);

  // Goes on with the best adapters so far, of the run that was loaded, or without any. Checkpoints
  // that are not to be kept are removed. Of the leading rank.
  void open_best(const Learner& learner, bool fresh);

  void save(const Learner& learner);  // unless the step was saved before
  // Until the leading rank has written what was to be saved: one that fails wakes the others, which
  // must not end it in its writing.
  void wait_for_files();

  std::vector<AdapterWeights> gather(
      const std::vector<AdapterWeights>& own);  // on the leading rank
  // Of all exits, on the leading rank.
  void offer_best(std::int64_t step, const ExitScores& scores,
                  const std::vector<AdapterWeights>& all);
  void write_adapters(const std::vector<AdapterWeights>& all);
  std::optional<std::int64_t> best_step() const { return best_->step(); }

 private:
  std::filesystem::path checkpoints() const { return setup_.options.out / "checkpoints"; }
  std::string newest() const;
  void clear();  // of all that a run leaves

  TrainSetup& setup_;
  std::optional<DirectoryLock> lock_;  // of the leading rank
  std::optional<BestAdapters> best_;   // of the leading rank
  std::int64_t saved_step_ = -1;
};

}  // namespace dex
