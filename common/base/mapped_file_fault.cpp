#include "common/base/mapped_file_fault.h"

#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "common/base/error.h"

namespace dex {

// Never freed, but used again: a signal may be looking at any of them at any time.
struct WatchedRange {
  std::atomic<const std::byte*> begin{nullptr};
  std::size_t size = 0;
  std::string words;  // what is told
  WatchedRange* next = nullptr;
};

namespace {

std::mutex mutex;  // of those who watch; the signal takes none
std::atomic<WatchedRange*> ranges{nullptr};
struct sigaction before;

// Only what a signal handler may call.
[[noreturn]] void end_process(const WatchedRange& range) {
  static std::atomic_flag told = ATOMIC_FLAG_INIT;
  if (told.test_and_set())
    for (;;) pause();  // another thread is telling, and ends this one, too
  const iovec pieces[] = {
      {program_invocation_short_name, std::strlen(program_invocation_short_name)},
      {const_cast<char*>(range.words.data()), range.words.size()}};
  (void)!writev(STDERR_FILENO, pieces, std::size(pieces));
  _exit(int(ExitCode::io));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const WatchedRange* range = ranges.load(); range; range = range->next) {
    const std::byte* begin = range->begin.load();
    if (begin && address >= begin && address < begin + range->size) end_process(*range);
  }
  sigaction(SIGBUS, &before, nullptr);  // nobody's: the same access meets the handler before ours
}

void start_watching() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, &before);
}

WatchedRange& unused_range() {
  for (WatchedRange* range = ranges.load(); range; range = range->next)
    if (!range->begin.load()) return *range;
  auto* fresh = new WatchedRange;
  fresh->next = ranges.load();
  ranges.store(fresh);
  return *fresh;
}

}  // namespace

WatchedRange* watch_for_faults(std::span<const std::byte> mapped,
                               const std::filesystem::path& path) {
  static std::once_flag once;
  std::call_once(once, start_watching);
  const std::lock_guard lock(mutex);
  WatchedRange& range = unused_range();
  range.size = mapped.size();
  range.words = fmt::format(
      ": error: {}: cut, or the disk failed, while it was being read; it had {} bytes when it was "
      "opened\n",
      path.string(), mapped.size());
  range.begin.store(mapped.data());
  return &range;
}

void end_watch(WatchedRange* range) {
  if (!range) return;
  const std::lock_guard lock(mutex);
  range->begin.store(nullptr);
}

}  // namespace dex
