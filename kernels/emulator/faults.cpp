// What went wrong, in words. Called by the launcher, once no thread of the block can go on.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/emulator/block.h"

namespace dex::emulator {
namespace {

std::string text_of(Site site) {
  const std::string path = site.file;
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(site.line);
}

std::string text_of_block() {
  const uint3& b = place.block;
  return "block (" + std::to_string(b.x) + ", " + std::to_string(b.y) + ", " + std::to_string(b.z) +
         ")";
}

std::string state_of(const Thread& thread) {
  return thread.exited ? "exited"
                       : std::string("at ") + thread.waits_at + ", " + text_of(thread.site);
}

}  // namespace

std::string describe_fault() {
  char text[256];
  std::snprintf(text, sizeof text, block.text, block.a, block.b);
  return text_of(block.site) + ": " + text + " (thread " + std::to_string(block.running) + " of " +
         text_of_block() + ")";
}

std::string describe_deadlock() {
  constexpr int kMostRanges = 8;
  struct Waiters {
    std::string state, threads;
    int ranges = 0;
  };
  std::vector<Waiters> all;
  const auto state = [](int thread) { return state_of(block.pool->threads[thread]); };
  for (int first = 0, next; first < block.size; first = next) {
    for (next = first + 1; next < block.size && state(next) == state(first);) ++next;
    auto same = std::find_if(all.begin(), all.end(),
                             [&](const Waiters& w) { return w.state == state(first); });
    if (same == all.end()) same = all.insert(all.end(), {state(first), "", 0});
    if (++same->ranges > kMostRanges) continue;
    if (!same->threads.empty()) same->threads += ", ";
    same->threads += std::to_string(first);
    if (next > first + 1) same->threads += "-" + std::to_string(next - 1);
  }
  std::string report = "deadlock in " + text_of_block();
  for (const Waiters& w : all)
    report += (&w == &all[0] ? ": threads " : "; threads ") + w.threads +
              (w.ranges > kMostRanges ? " ...: " : ": ") + w.state;
  return report;
}

}  // namespace dex::emulator
