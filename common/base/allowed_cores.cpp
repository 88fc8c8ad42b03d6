#include "common/base/allowed_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace dex {
namespace {

namespace fs = std::filesystem;

// The kernel refuses a set that is smaller than its own.
std::vector<cpu_set_t> affinity() {
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0) return mask;
  }
  return {};
}

// cpu.max of version 2: "max 100000" or "150000 100000"
std::optional<double> quota_of_version_2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string most;
  double period = 0;
  if (!(file >> most >> period) || period <= 0 || most == "max") return std::nullopt;
  double quota = 0;
  return std::istringstream(most) >> quota && quota > 0 ? std::optional(quota / period)
                                                        : std::nullopt;
}

// -1 is none
std::optional<double> quota_of_version_1(const fs::path& group) {
  double quota = 0, period = 0;
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

template <typename QuotaOf>
void narrow(std::optional<double>& least, const fs::path& root, const fs::path& group,
            const QuotaOf& quota_of) {
  fs::path at = root;
  const auto look = [&] {
    if (const auto quota = quota_of(at); quota && (!least || *quota < *least)) least = quota;
  };
  look();
  for (const fs::path& part : group.relative_path()) {
    at /= part;
    look();
  }
}

bool names_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');)
    if (one == "cpu") return true;
  return false;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& membership, const fs::path& root) {
  std::optional<double> least;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // number:controllers:/group
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      group = line.substr(second + 1);
    if (controllers.empty())
      for (const fs::path& mount : {root, root / "unified"})
        narrow(least, mount, group, quota_of_version_2);
    if (names_cpu(controllers))
      for (const fs::path& mount : {root / "cpu", root / controllers})
        narrow(least, mount, group, quota_of_version_1);
  }
  return least;
}

int allowed_cores(int by_affinity, std::optional<double> quota) {
  const int cores = std::max(1, by_affinity);
  return quota ? int(std::clamp(std::ceil(*quota), 1.0, double(cores))) : cores;
}

int allowed_cores() {
  int count = 0;
  for (const cpu_set_t& set : affinity()) count += CPU_COUNT(&set);
  if (count == 0) count = int(std::thread::hardware_concurrency());
  return allowed_cores(count, cpu_quota());
}

bool may_run_on(int core) {
  const auto mask = affinity();
  return core >= 0 && std::size_t(core) < mask.size() * CPU_SETSIZE &&
         CPU_ISSET(std::size_t(core) % CPU_SETSIZE, &mask[std::size_t(core) / CPU_SETSIZE]);
}

}  // namespace dex
