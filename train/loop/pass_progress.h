// What an operator sees of long work between the steps, and how it is broken off.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/progress.h"
#include "train/loop/train_setup.h"

namespace dex {

class PassProgress {
 public:
  // `title` of the progress line, which the leading rank has; `work` in the message of the error.
  PassProgress(const TrainSetup& setup, std::string title, std::string work);

  // After each pass of this rank. Error(temporary) when the run is asked to stop.
  void operator()(std::int64_t done, std::int64_t of);

 private:
  const TrainSetup& setup_;
  std::string title_, work_;
  std::optional<Progress> progress_;
};

}  // namespace dex
