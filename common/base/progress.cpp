#include "common/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/log.h"

namespace dex {
namespace {
constexpr int kBarWidth = 24, kNarrowBarWidth = 8;
constexpr double kTerminalInterval = 0.1, kPlainInterval = 10.0;  // seconds between two drawings

// 0 when stderr does not tell. A line that wraps cannot be redrawn.
std::size_t terminal_columns() {
  winsize size{};
  return ioctl(fileno(stderr), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
}  // namespace

std::string clock_text(double seconds) {
  const auto s = std::int64_t(std::max(0.0, seconds) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(std::string title, std::int64_t total, std::string unit)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      start_(Clock::now()),
      drawn_(start_),
      terminal_(isatty(fileno(stderr))) {}

Progress::~Progress() {
  if (!dirty_) return;
  std::fputs(drawn(note_).c_str(), stderr);
  std::fputc('\n', stderr);
}

void Progress::update(std::int64_t done, const std::string& note) {
  if (is_quiet()) return;
  done_ = done;
  note_ = note;
  dirty_ = true;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - drawn_).count();
  if (since < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  drawn_ = now;
  std::fputs((terminal_ ? drawn(note) : drawn(note) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

std::string Progress::drawn(const std::string& note) const {
  if (!terminal_) return line(note, kBarWidth);
  const std::size_t columns = terminal_columns();
  std::string text = line(note, kBarWidth);
  if (columns > 0 && text.size() >= columns)
    text = line(note, kNarrowBarWidth).substr(0, columns - 1);
  return "\r\033[K" + text;
}

std::string Progress::line(const std::string& note, int bar_width) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string text = title_ + " ";
  if (total_ > 0) {
    const double share = std::clamp(double(done_) / total_, 0.0, 1.0);
    const int full = int(share * bar_width);
    text += fmt::format("[{}{}] {:3.0f}% {}/{} {}", std::string(full, '#'),
                        std::string(bar_width - full, '.'), share * 100, done_, total_, unit_);
    text += fmt::format("  {} elapsed", clock_text(elapsed));
    if (share > 0 && share < 1)
      text += fmt::format(", {} left", clock_text(elapsed / share * (1 - share)));
  } else {
    text += fmt::format("{} {}  {} elapsed", done_, unit_, clock_text(elapsed));
  }
  return note.empty() ? text : text + "  " + note;
}

}  // namespace dex
