// Progress of long work with an estimate of the time left: a bar that redraws on a terminal, a
// plain line now and then elsewhere. Writes to stderr. Not for use from several threads at once.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace dex {

class Progress {
 public:
  // `unit` names what is counted ("records", "steps"). A total of 0 means unknown: no bar, no
  // estimate.
  Progress(std::string title, std::int64_t total, std::string unit);
  ~Progress();  // finishes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `note` is shown behind the bar ("loss 1.23  512 tok/s").
  void update(std::int64_t done, const std::string& note = "");

 private:
  std::string line(const std::string& note, int bar_width) const;
  std::string drawn(const std::string& note) const;  // as it fits

  using Clock = std::chrono::steady_clock;
  std::string title_, unit_, note_;
  std::int64_t total_, done_ = 0;
  Clock::time_point start_, drawn_;
  bool terminal_, dirty_ = false;
};

// "0:07", "12:30", "2:05:00".
std::string clock_text(double seconds);

}  // namespace dex
