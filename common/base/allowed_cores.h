// How many threads this process may keep busy: the cores that it may run on, and no more than its
// control groups give it time for. A machine has more of both than a job is given.
#pragma once
#include <filesystem>
#include <optional>

namespace dex {

// What "one thread per core" means, at least 1. A part of a core counts as one.
int allowed_cores();

bool may_run_on(int core);

// The least quota in cores of this process's control groups and of those around them, version 1 or
// 2, or nothing. `membership` is a file such as /proc/self/cgroup; groups that are not seen under
// `root`, as in a container, are passed over.
std::optional<double> cpu_quota(const std::filesystem::path& membership = "/proc/self/cgroup",
                                const std::filesystem::path& root = "/sys/fs/cgroup");

int allowed_cores(int by_affinity, std::optional<double> quota);

}  // namespace dex
