// What a run's times are read from.
#pragma once
#include "common/base/stopwatch.h"

namespace dex {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double seconds() const = 0;  // since it was made
};

class RealClock final : public Clock {
 public:
  double seconds() const override { return watch_.seconds(); }

 private:
  Stopwatch watch_;
};

}  // namespace dex
