#include "common/comm/rank_environment.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/support/errors.h"

using namespace dex;

namespace {

using Environment = std::map<std::string, std::string>;

RankEnvironment read(const Environment& environment) {
  return rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

const Environment kTorchrun{{"RANK", "3"},         {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1234"}};
const Environment kSlurm{{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_JOB_ID", "41007"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08,11]"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

}  // namespace

TEST_CASE("every launcher's variables are read") {
  const RankEnvironment torchrun = read(kTorchrun);
  CHECK(torchrun.source == "torchrun");
  CHECK(torchrun.rank == 3);
  CHECK(torchrun.world == 4);
  CHECK(torchrun.local_rank == 1);
  CHECK(torchrun.local_world == 2);
  CHECK(torchrun.address == "n1");
  CHECK(torchrun.port == 1234);
  CHECK_FALSE(torchrun.launcher_has_store);
  CHECK(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).launcher_has_store);
  CHECK(read(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2")).attempt == "2");

  const RankEnvironment slurm = read(kSlurm);
  CHECK(slurm.source == "Slurm");
  CHECK(slurm.rank == 5);
  CHECK(slurm.world == 8);
  CHECK(slurm.address == "gpu07");
  CHECK(slurm.port == 21007);
  CHECK(read(with(kSlurm, "SLURM_STEP_NODELIST", "alpha,beta")).address == "alpha");
  CHECK(read(with(kSlurm, "SLURM_STEP_NODELIST", "rack2-n[3,5].hpc,other")).address ==
        "rack2-n3.hpc");
  CHECK(read(with(kSlurm, "MASTER_ADDR", "head")).address == "head");

  const RankEnvironment mpi = read(kOpenMpi);
  CHECK(mpi.source == "Open MPI");
  CHECK(mpi.rank == 1);
  CHECK(mpi.address == "127.0.0.1");  // all on this machine
  CHECK(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "n1"}}).source == "PMI");
}

TEST_CASE("torchrun comes before Slurm, Slurm before MPI, and nothing is one rank") {
  Environment all = kTorchrun;
  all.insert(kSlurm.begin(), kSlurm.end());
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(read(all).source == "torchrun");
  all.erase("RANK");
  all.erase("WORLD_SIZE");
  CHECK(read(all).source == "Slurm");
  all.erase("SLURM_PROCID");
  CHECK(read(all).source == "Open MPI");
  // a Slurm allocation, but not started by srun
  const RankEnvironment none = read({{"SLURM_NTASKS", "4"}});
  CHECK(none.source == "one process");
  CHECK(none.world == 1);
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world == 1);  // needs no address
}

TEST_CASE("half-set and contradictory environments are refused by name") {
  const auto refused = [](const Environment& environment, const std::vector<std::string>& words) {
    test::check_refused(ExitCode::usage, words, [&] { read(environment); });
  };
  refused(without(kTorchrun, "RANK"), {"WORLD_SIZE", "RANK is missing"});
  refused(without(kTorchrun, "WORLD_SIZE"), {"RANK", "WORLD_SIZE is missing"});
  refused(without(kTorchrun, "MASTER_ADDR"), {"MASTER_ADDR is missing"});
  refused(without(kTorchrun, "MASTER_PORT"), {"MASTER_PORT is missing"});
  refused(with(kTorchrun, "RANK", "4"), {"contradicts", "RANK is 4", "WORLD_SIZE is 4"});
  refused(with(kTorchrun, "LOCAL_RANK", "9"), {"contradicts", "LOCAL_RANK is 9"});
  refused(with(kTorchrun, "RANK", "one"), {"RANK is \"one\""});
  refused(with(kTorchrun, "WORLD_SIZE", "-2"), {"WORLD_SIZE is \"-2\""});
  refused(with(kTorchrun, "MASTER_PORT", "70000"), {"MASTER_PORT is \"70000\""});
  refused(without(kSlurm, "SLURM_NTASKS"), {"SLURM_NTASKS is missing"});
  // several machines
  refused(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), {"MASTER_ADDR is missing"});
}

TEST_CASE("of a refused environment rank and meeting place are known where they are there") {
  const auto place = [](const Environment& environment) {
    return meeting_place([&](const std::string& name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    });
  };
  const auto known = place(with(kTorchrun, "WORLD_SIZE", "two"));
  REQUIRE(known);
  CHECK(known->rank == 3);
  CHECK(known->address == "n1");
  CHECK(known->port == 1234);
  for (const char* rank : {"one", "-1", "3.0", "99999999999"}) {
    CAPTURE(rank);
    const auto nameless = place(with(kTorchrun, "RANK", rank));
    REQUIRE(nameless);
    CHECK(nameless->rank == kUnknownRank);
    CHECK(nameless->address == "n1");
    CHECK(nameless->port == 1234);
  }
  CHECK(place(without(kTorchrun, "RANK"))->rank == kUnknownRank);
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    CHECK_FALSE(place(without(kTorchrun, name)));
  }
  CHECK_FALSE(place(with(kTorchrun, "MASTER_PORT", "70000")));
  CHECK(place(with(kSlurm, "SLURM_PROCID", "x"))->address == read(kSlurm).address);
  CHECK(place(with(kSlurm, "SLURM_PROCID", "x"))->port == read(kSlurm).port);
  CHECK(place(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "x"))->address == "127.0.0.1");
  CHECK_FALSE(place({}));
}

TEST_CASE("a step of Slurm counts its own tasks, whatever the job has room for") {
  const Environment step =
      with(with(with(kSlurm, "SLURM_STEP_NUM_TASKS", "2"), "SLURM_PROCID", "1"),
           "SLURM_JOB_NODELIST", "other[1-9]");
  CHECK(read(step).rank == 1);
  CHECK(read(step).world == 2);
  CHECK(read(step).address == "gpu07");
  CHECK(read(without(step, "SLURM_NTASKS")).world == 2);
  const RankEnvironment one =
      read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  CHECK(one.source == "Slurm");
  CHECK(one.world == 1);
  test::check_refused(ExitCode::usage,
                      {"contradicts", "SLURM_PROCID is 3", "SLURM_STEP_NUM_TASKS is 2"},
                      [&] { read(with(step, "SLURM_PROCID", "3")); });
  test::check_refused(ExitCode::usage, {"SLURM_STEP_NUM_TASKS is \"two\""},
                      [&] { read(with(step, "SLURM_STEP_NUM_TASKS", "two")); });
}

TEST_CASE("the script of a Slurm job is one rank, and what mpirun starts in it is a rank of MPI") {
  const Environment script{{"SLURM_PROCID", "0"},       {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "0"},      {"SLURM_JOB_ID", "41007"},
                           {"SLURM_JOB_NODELIST", "a"}, {"SLURM_NODEID", "0"}};
  CHECK(read(script).source == "one process");
  CHECK(read(script).world == 1);
  Environment inside = script;
  inside.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(read(inside).source == "Open MPI");
  CHECK(read(inside).rank == 1);
  for (const char* of_step : {"SLURM_STEP_ID", "SLURM_STEPID"})
    CHECK(read(with(script, of_step, "0")).world == 8);
  CHECK(read(with(script, "SLURM_PROCID", "2")).world == 8);
}
