// What happens when a mapped file is cut, or its disk fails, while it is being read: the system
// sends SIGBUS to whoever reads there. From the first range on that is watched, the process then
// ends with ExitCode::io and the file's path on stderr. Faults elsewhere go where they went before.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace dex {

struct WatchedRange;

WatchedRange* watch_for_faults(std::span<const std::byte> mapped,
                               const std::filesystem::path& path);
void end_watch(WatchedRange* range);  // before it is unmapped; null is nothing

}  // namespace dex
