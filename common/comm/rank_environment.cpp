#include "common/comm/rank_environment.h"

#include <charconv>
#include <cstdlib>

#include "common/base/error.h"

namespace dex {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kDefaultPort = 29500;  // torchrun's

// The order in which launchers are looked for. `rank` tells that the launcher started this process;
// `size` alone does so only where `size_tells`: Slurm sets it in every job, started by srun or not.
// srun's variables of the step come before the job's, which may have room for more tasks.
struct Launcher {
  const char *source, *rank, *size, *local_rank, *local_size;
  bool size_tells;
  const char* step_size = nullptr;
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, false,
     "SLURM_STEP_NUM_TASKS"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
};

class Variables {
 public:
  explicit Variables(const Getenv& get) : get_(get) {}

  std::optional<std::string> text(const char* name) const {
    auto value = name ? get_(name) : std::nullopt;
    return value && !value->empty() ? value : std::nullopt;
  }

  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    require(error == std::errc() && end == value->data() + value->size() && number >= least &&
                number <= most,
            ExitCode::usage, "the environment's {} is \"{}\", wanted a number in {} .. {}", name,
            *value, least, most);
    return number;
  }

  // Nothing where it is no number, either.
  std::optional<int> number_or_none(const char* name, int least, int most) const try {
    return number(name, least, most);
  } catch (const Error&) {
    return std::nullopt;
  }

 private:
  const Getenv& get_;
};

// The script of a job has rank 0 of all the job's tasks in its environment, but is no task: srun
// starts those, and says which step they are.
bool in_batch_script(const Variables& variables, const Launcher& launcher) {
  if (!launcher.step_size || variables.text(launcher.rank) != "0") return false;
  for (const char* of_step :
       {launcher.step_size, "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST"})
    if (variables.text(of_step)) return false;
  return true;
}

int needed(const Variables& variables, const Launcher& launcher, const char* name, int least) {
  const auto value = variables.number(name, least, kMaxRanks);
  require(value.has_value(), ExitCode::usage,
          "the environment is half set: {} has set {}, but {} is missing", launcher.source,
          name == launcher.rank ? launcher.size : launcher.rank, name);
  return *value;
}

std::optional<Launcher> launcher_of(const Variables& variables) {
  for (Launcher launcher : kLaunchers) {
    if (!variables.text(launcher.rank) && !(launcher.size_tells && variables.text(launcher.size)))
      continue;
    if (in_batch_script(variables, launcher)) continue;
    if (variables.text(launcher.step_size)) launcher.size = launcher.step_size;
    return launcher;
  }
  return std::nullopt;
}

RankEnvironment started_by(const Variables& variables, const Launcher& launcher) {
  return {
      .launcher_has_store = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True",
      .attempt = variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0"),
      .source = launcher.source};
}

// "node[03-05,9],other" -> "node03"
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of("-,]", bracket);
  const std::size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return "";
  const std::size_t rest = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, rest == std::string::npos ? rest : rest - close - 1);
}

void find_meeting_place(const Variables& variables, const Launcher& launcher,
                        RankEnvironment& place) {
  const bool slurm = std::string(launcher.source) == "Slurm",
             torchrun = std::string(launcher.source) == "torchrun";
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  const auto job = slurm ? variables.number("SLURM_JOB_ID", 0, 2'000'000'000) : std::nullopt;
  place.port = std::uint16_t(port ? *port : job ? 20000 + *job % 40000 : kDefaultPort);
  if (const auto address = variables.text("MASTER_ADDR")) place.address = *address;
  if (place.address.empty() && slurm)
    for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      if (place.address.empty()) place.address = first_host(variables.text(list).value_or(""));
  if (place.address.empty() && !torchrun &&
      variables.number(launcher.local_size, 1, kMaxRanks) == place.world)
    place.address = "127.0.0.1";
  require(!place.address.empty(), ExitCode::usage,
          "the environment is half set: {} has started {} ranks, but MASTER_ADDR is missing",
          launcher.source, place.world);
  require(!torchrun || port, ExitCode::usage,
          "the environment is half set: torchrun has set WORLD_SIZE, but MASTER_PORT is missing");
}

}  // namespace

RankEnvironment rank_environment(const Getenv& get) {
  const Variables variables(get);
  const auto launcher = launcher_of(variables);
  if (!launcher) return {.source = "one process"};
  RankEnvironment place = started_by(variables, *launcher);
  place.rank = needed(variables, *launcher, launcher->rank, 0);
  place.world = needed(variables, *launcher, launcher->size, 1);
  require(place.rank < place.world, ExitCode::usage,
          "the environment contradicts itself: {} is {}, {} is {}", launcher->rank, place.rank,
          launcher->size, place.world);
  place.local_rank = variables.number(launcher->local_rank, 0, kMaxRanks).value_or(0);
  require(place.local_rank <= place.rank, ExitCode::usage,
          "the environment contradicts itself: {} is {}, {} is {}", launcher->local_rank,
          place.local_rank, launcher->rank, place.rank);
  place.local_world = variables.number(launcher->local_size, 1, kMaxRanks).value_or(1);
  if (place.world > 1) find_meeting_place(variables, *launcher, place);
  return place;
}

std::optional<RankEnvironment> meeting_place(const Getenv& get) try {
  const Variables variables(get);
  const auto launcher = launcher_of(variables);
  if (!launcher) return std::nullopt;
  RankEnvironment place = started_by(variables, *launcher);
  place.rank = variables.number_or_none(launcher->rank, 0, kMaxRanks).value_or(kUnknownRank);
  place.world = variables.number_or_none(launcher->size, 1, kMaxRanks).value_or(kMaxRanks);
  find_meeting_place(variables, *launcher, place);
  return place;
} catch (const Error&) {
  return std::nullopt;
}

namespace {

std::optional<std::string> of_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

RankEnvironment rank_environment() { return rank_environment(of_process); }
std::optional<RankEnvironment> meeting_place() { return meeting_place(of_process); }

}  // namespace dex
