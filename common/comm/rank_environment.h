// Which of how many processes this one is, as the launcher's environment says.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dex {

struct RankEnvironment {
  int rank = 0, world = 1;
  // among the processes of this machine; 1 when nobody says how many
  int local_rank = 0, local_world = 1;
  std::string address;  // where rank 0's store listens; "" when there is one rank
  std::uint16_t port = 0;
  bool launcher_has_store = false;  // torchrun keeps the store itself
  // restarts do not read what an earlier attempt left in the store
  std::string attempt = "0";
  std::string source;  // "torchrun", "Slurm", ...; "one process"
};

using Getenv = std::function<std::optional<std::string>(const std::string& name)>;

// The first of torchrun, Slurm, Open MPI and PMI whose variables are there, else one rank. Slurm's
// are those of the step; a job's script is no task of a step, so one rank. A variable missing
// beside others, no number, or in contradiction to another is Error(usage) naming it.
RankEnvironment rank_environment(const Getenv& variable);
RankEnvironment rank_environment();  // of this process

constexpr int kUnknownRank = -1;

// Where rank_environment() refuses the rest: the rank, or kUnknownRank, and where the others wait
// for it, so that they can be told, if that much is known.
std::optional<RankEnvironment> meeting_place(const Getenv& variable);
std::optional<RankEnvironment> meeting_place();

}  // namespace dex
