// dex train as several processes: the bits of one, and what happens when a process is lost, stopped
// or missing.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <memory>

#include "common/base/file.h"
#include "data/shard_writer.h"
#include "tests/support/network_pair.h"
#include "tests/support/port.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;
using test::Process;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPatience = 60;  // for what should end by itself, on a busy machine
constexpr double kSlack = 10;     // what a busy machine may add to a time that is promised

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Training {
  test::TempDir dir;
  std::map<std::string, std::string> options{
      {"--depths", "1,3"},     {"--batch-size", "4"},    {"--micro-batch", "1"},
      {"--lr", "1e-2"},        {"--dtype", "f32"},       {"--threads", "1"},
      {"--eval-samples", "3"}, {"--init-timeout", "60"}, {"--step-timeout", "60"},
      {"--save-every", "0"},   {"--device", "cpu"},      {"--model", dir / "m"},
      {"--data", dir / "data"}};
  std::map<int, std::map<std::string, std::string>> of_rank;  // in place of the options above
  std::map<int, test::Command> before;                        // words in front of a rank's command
  int port = test::Port().number();
  std::string host = "127.0.0.1";

  Training() {
    test::TinyModel{}.write(dir / "m");
    make_directory(dir / "data");
    ShardWriter writer(dir / "data", 97);
    for (const Sample& sample : test::tiny_samples(21, 97, 2)) writer.add("train", sample);
    for (const Sample& sample : test::tiny_samples(4, 97, 3)) writer.add("held_out", sample);
    writer.finish({.vocabulary = 97, .max_len = 64}, {"made", 1, false, 0, 0}, "none");
  }

  std::unique_ptr<Process> start(const std::string& out, int rank, int world,
                                 const std::vector<std::string>& more = {}) const {
    const std::string r = std::to_string(rank), w = std::to_string(world);
    test::Command command{"RANK=" + r,           "WORLD_SIZE=" + w,
                          "LOCAL_RANK=" + r,     "LOCAL_WORLD_SIZE=" + w,
                          "MASTER_ADDR=" + host, "MASTER_PORT=" + std::to_string(port)};
    if (before.contains(rank))
      command.insert(command.end(), before.at(rank).begin(), before.at(rank).end());
    command.insert(command.end(), {std::string(DEX_BINARY_DIR) + "/dex", "train", "--out",
                                   dir / out, "--deterministic"});
    auto all = of_rank.contains(rank) ? of_rank.at(rank) : std::map<std::string, std::string>();
    all.insert(options.begin(), options.end());
    for (const auto& [name, value] : all) command.insert(command.end(), {name, value});
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<Process>(command, dir / (out + "." + r + ".log"));
  }
  std::vector<std::unique_ptr<Process>> start_all(const std::string& out, int world,
                                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::unique_ptr<Process>> all;
    for (int rank = 0; rank < world; ++rank) all.push_back(start(out, rank, world, more));
    return all;
  }
  // The run has made its first steps.
  void wait_for_steps(const std::string& out) const {
    const auto start = Clock::now();
    const fs::path path = dir / out / "metrics.jsonl";
    while (!fs::exists(path) || read_file(path).find("\"step\":3,") == std::string::npos) {
      REQUIRE(seconds_since(start) < kPatience);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::string adapter(const std::string& out) const {
    return read_file(dir / out / "adapter_config.json") +
           read_file(dir / out / "adapter_model.safetensors");
  }
};

void check_all_end(std::vector<std::unique_ptr<Process>>& all, int code,
                   const std::vector<std::string>& words, int without = -1) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (int(rank) == without) continue;
    const auto seen = all[rank]->wait(kPatience);
    INFO("rank " << rank << ": " << all[rank]->log());
    CHECK(seen == code);
    for (const std::string& word : words) CHECK(all[rank]->log().find(word) != std::string::npos);
  }
}

constexpr const char* kEndless = "1000000";

}  // namespace

TEST_CASE(
    "processes train the adapters of one process, byte for byte, and go on where fewer stopped") {
  Training run;
  auto one = run.start_all("one", 1, {"--steps", "6"});
  check_all_end(one, 0, {});
  auto four = run.start_all("parts", 4, {"--steps", "6", "--stages", "2", "--stop-after", "4"});
  check_all_end(four, 75, {});
  auto three = run.start_all("parts", 3, {"--steps", "6", "--resume"});
  check_all_end(three, 0, {});
  CHECK(run.adapter("parts") == run.adapter("one"));
}

TEST_CASE("when a process is killed, all others end with 75 at once and name it", "[timing]") {
  const int victim = GENERATE(0, 1);  // 0 has the store
  Training run;
  run.options["--steps"] = kEndless;
  auto all = run.start_all("out", 3);
  run.wait_for_steps("out");
  all[victim]->send(SIGKILL);
  const auto killed = Clock::now();
  // Word of the first loss goes by the store: without it the last to leave may name another.
  const std::string named = "rank " + std::to_string(victim) + " is gone";
  check_all_end(all, 75, {"step ", victim == 0 ? " is gone" : named}, victim);
  std::string logs;
  for (int rank = 0; rank < 3; ++rank)
    if (rank != victim) logs += all[rank]->log();
  CHECK(logs.find(named) != std::string::npos);
  CHECK(logs.find("frame #") == std::string::npos);  // libtorch's stack traces
  // not the deadline of 60; a second where nobody else needs the machine
  CHECK(seconds_since(killed) < 1 + kSlack);
}

TEST_CASE(
    "when a process is stopped, all others end with 75 within the step's deadline and name it",
    "[timing]") {
  Training run;
  const bool replicas = GENERATE(false, true);
  run.options["--steps"] = kEndless;
  run.options["--step-timeout"] = "10";
  run.options["--stages"] = replicas ? "1" : "2";
  auto all = run.start_all("out", 2);
  run.wait_for_steps("out");
  all[1]->send(SIGSTOP);
  const auto stopped = Clock::now();
  check_all_end(all, 75, {"rank 0, step ", "rank 1 sent and took nothing for 10.0 s"}, 1);
  CHECK(seconds_since(stopped) < 10 + 1 + kSlack);
  CHECK(seconds_since(stopped) > 9);
}

TEST_CASE(
    "when the network between two processes is cut, both end with 75 within the step's deadline "
    "and name "
    "each other",
    "[timing]") {
  const test::NetworkPair network;
  if (!network) return;
  Training run;
  const bool replicas = GENERATE(false, true);
  run.options["--steps"] = kEndless;
  run.options["--step-timeout"] = "10";
  run.options["--stages"] = replicas ? "1" : "2";
  run.host = network.address(0);
  for (int rank = 0; rank < 2; ++rank) run.before[rank] = network.on(rank);
  auto all = run.start_all("out", 2);
  run.wait_for_steps("out");
  network.cut();
  const auto cut = Clock::now();
  check_all_end(all, 75, {"sent and took nothing for 10.0 s"});
  CHECK(seconds_since(cut) < 10 + 1 + kSlack);
  CHECK(all[0]->log().find("rank 0, step ") != std::string::npos);
  CHECK(all[1]->log().find("rank 1, step ") != std::string::npos);
}

TEST_CASE("a write to a peer that is gone ends no process") {
  Training run;
  run.options["--steps"] = kEndless;
  auto all = run.start_all("out", 2);
  run.wait_for_steps("out");
  for (const auto& process : all) process->send(SIGPIPE);
  all[1]->send(SIGTERM);
  check_all_end(all, 75, {});
}

TEST_CASE("SIGTERM to one process stops all, saved, with 75") {
  Training run;
  run.options["--steps"] = kEndless;
  auto all = run.start_all("out", 2);
  run.wait_for_steps("out");
  all[1]->send(SIGTERM);
  check_all_end(all, 75, {});
  CHECK(all[0]->log().find("\"status\":\"stopped\"") != std::string::npos);
  CHECK_FALSE(fs::is_empty(run.dir / "out/checkpoints"));
}

TEST_CASE("when a process never comes, the others end with 75 within the deadline and name it",
          "[timing]") {
  Training run;
  run.options["--init-timeout"] = "10";
  const auto start = Clock::now();
  auto first = run.start("out", 0, 3), last = run.start("out", 2, 3);
  CHECK(first->wait(kPatience) == 75);
  CHECK(last->wait(kPatience) == 75);
  CHECK(seconds_since(start) < 10 + 1 + kSlack);
  CHECK(first->log().find("rank 0, joining: of 3 ranks these have not come: 1") !=
        std::string::npos);
}

TEST_CASE("when rank 0 never comes, the others end with 75 within the deadline", "[timing]") {
  Training run;
  run.options["--init-timeout"] = "1.5";
  const auto start = Clock::now();
  auto second = run.start("out", 1, 2);
  CHECK(second->wait(kPatience) == 75);
  CHECK(seconds_since(start) < 1.5 + 1 + kSlack);
  INFO(second->log());
  CHECK(second->log().find("rank 1, joining") != std::string::npos);
}

TEST_CASE("a port in use ends rank 0 with 75 at once", "[timing]") {
  Training run;
  const test::Port taken(true);
  run.port = taken.number();
  const auto start = Clock::now();
  auto first = run.start("out", 0, 2);
  CHECK(first->wait(kPatience) == 75);
  CHECK(seconds_since(start) < 1 + kSlack);
  INFO(first->log());
  CHECK(first->log().find("port " + std::to_string(taken.number()) + " is in use") !=
        std::string::npos);
}

TEST_CASE("a host without an address is told at once, and again when joining ends", "[timing]") {
  Training run;
  run.host = "no-such-host.invalid";
  run.options["--init-timeout"] = "4";
  addrinfo* found = nullptr;
  const auto asked = Clock::now();
  const int answer = getaddrinfo(run.host.c_str(), "1", nullptr, &found);
  if (answer == 0) freeaddrinfo(found);
  if (answer == 0 || seconds_since(asked) > 1) {
    std::cout << "SKIPPED: this machine's resolver does not say at once that a host is unknown\n";
    return;
  }
  auto all = run.start_all("out", 2);
  check_all_end(all, 75,
                {run.host + " has no address yet: " + gai_strerror(answer),
                 run.host + ":" + std::to_string(run.port)});
  for (const auto& process : all) CHECK(process->log().find("nobody answers") == std::string::npos);
}

TEST_CASE("processes meet at an address of the sixth version") {
  Training run;
  run.host = "::1";
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 here{};
  here.sin6_family = AF_INET6;
  here.sin6_addr = in6addr_loopback;
  const bool there =
      probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0;
  if (probe >= 0) close(probe);
  if (!there) {
    std::cout << "SKIPPED: this machine has no IPv6 loopback\n";
    return;
  }
  auto all = run.start_all("out", 2, {"--steps", "2"});
  check_all_end(all, 0, {});
}

TEST_CASE("processes that were asked for different runs end with 2 and the difference") {
  struct Case {
    const char *option, *value, *difference;
  };
  // The latter two decide which rank waits for which before the model is loaded.
  for (const Case& c : {Case{"--seed", "3", "seed is 3, rank 0 has 0"},
                        {"--eval-samples", "0", "eval_samples is 0, rank 0 has 3"},
                        {"--depths", "1,2,3", "depths is \"1,2,3,4\", rank 0 has \"1,3,4\""}}) {
    Training run;
    run.of_rank[1] = {{c.option, c.value}};
    auto all = run.start_all("out", 2);
    check_all_end(all, 2, {std::string("rank 1 was asked for another run: ") + c.difference});
  }
}

TEST_CASE("a process that cannot start ends the others with its code") {
  Training run;
  run.of_rank[1] = {{"--data", run.dir / "nowhere"}};
  auto all = run.start_all("out", 2);
  check_all_end(all, 2, {"nowhere"});
}

TEST_CASE("a process that leaves before it joins is named to the others at once, with its code",
          "[timing]") {
  const int bad = GENERATE(0, 1);  // 0 has the store
  struct Case {
    const char *option, *value, *words;
  };
  for (const Case& c : {Case{"--batch-size", "0", "--batch-size is 0"},
                        {"--batch-size", "many", "--batch-size"},
                        {"--no-such-option", "1", "no-such-option"}}) {
    INFO(c.option << " " << c.value << " of rank " << bad);
    Training run;
    run.of_rank[bad] = {{c.option, c.value}};
    const auto start = Clock::now();
    auto all = run.start_all("out", 3);
    check_all_end(all, 2, {c.words});
    CHECK(seconds_since(start) < kSlack + 10);  // not the deadline of 60
    for (int rank = 0; rank < 3; ++rank)
      if (rank != bad)
        CHECK(all[std::size_t(rank)]->log().find("rank " + std::to_string(bad) + " (process ") !=
              std::string::npos);
  }
}

TEST_CASE("a process whose environment is no rank's is named to the others at once", "[timing]") {
  struct Case {
    const char *variable, *words;
  };
  const Case c = GENERATE(Case{"WORLD_SIZE=1", "RANK is 1, WORLD_SIZE is 1"},
                          Case{"RANK=-1", "RANK is \"-1\""}, Case{"RANK=one", "RANK is \"one\""},
                          Case{"RANK=", "RANK is missing"}, Case{"RANK=7", "RANK is 7"});
  INFO(c.variable);
  Training run;
  const auto start = Clock::now();
  std::vector<std::unique_ptr<Process>> all;
  run.before[1] = {c.variable};
  for (int rank = 0; rank < 2; ++rank) all.push_back(run.start("out", rank, 3));
  check_all_end(all, 2, {c.words});
  CHECK(all[0]->log().find(" does not join: ") != std::string::npos);
  CHECK(seconds_since(start) < kSlack + 10);
}

TEST_CASE("processes that were started with one number, or as parts of other runs, end with 2",
          "[timing]") {
  Training run;
  const auto start = Clock::now();
  std::vector<std::unique_ptr<Process>> all;
  SECTION("one number") {
    const int twice = GENERATE(0, 1);
    all.push_back(run.start("out", 0, 3));
    all.push_back(run.start("out", 1, 3));
    all.push_back(run.start("again", twice, 3));
    check_all_end(all, 2, {"rank " + std::to_string(twice) + " is there twice: process "});
  }
  SECTION("other numbers of processes") {
    all.push_back(run.start("out", 0, 2));
    all.push_back(run.start("out", 1, 3));
    check_all_end(all, 2, {"one of 2, as torchrun says", "one of 3, as torchrun says"});
  }
  CHECK(seconds_since(start) < kSlack + 10);
}

TEST_CASE("samples longer than the model's positions are refused before the first step") {
  for (const char* split : {"train", "held_out"}) {
    Training run;
    test::TinyModel{.max_positions = 30}.write(run.dir / "m");
    make_directory(run.dir / "long");
    ShardWriter writer(run.dir / "long", 97);
    for (const char* name : {"train", "held_out"}) {
      for (const Sample& sample : test::tiny_samples(5, 97, 2)) writer.add(name, sample);
      for (const std::size_t length : {std::size_t(30), std::size_t(31)})
        if (length == 30 || name == std::string(split))
          writer.add(name, {std::vector<Token>(length, 5), std::vector<std::uint8_t>(length, 1)});
    }
    writer.finish({.vocabulary = 97, .max_len = 64}, {"made", 1, false, 0, 0}, "none");
    run.options["--data"] = run.dir / "long";
    auto one = run.start_all("out", 1, {"--steps", "1"});
    check_all_end(one, 2,
                  {"long/" + std::string(split), "31 tokens", "30 positions", "--max-len 30"});
    CHECK_FALSE(fs::exists(run.dir / "out/checkpoints"));
    test::TinyModel{.max_positions = 31}.write(run.dir / "m");
    auto fits = run.start_all("fits", 1, {"--steps", "1"});
    check_all_end(fits, 0, {});
  }
}

TEST_CASE("a step of one task in a Slurm job of four trains alone") {
  for (const test::Command& slurm :
       {test::Command{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=1"},
        {"SLURM_PROCID=0", "SLURM_NTASKS=4"}}) {
    Training run;
    run.options["--steps"] = "1";
    test::Command command = slurm;
    command.insert(command.end(),
                   {std::string(DEX_BINARY_DIR) + "/dex", "train", "--out", run.dir / "out"});
    for (const auto& [name, value] : run.options) command.insert(command.end(), {name, value});
    Process process(command, run.dir / "log");
    CHECK(process.wait(kPatience) == 0);
    INFO(process.log());
    CHECK(process.log().find("\"status\":\"finished\"") != std::string::npos);
  }
}

TEST_CASE("a dry run plans for any cluster from config.json alone") {
  test::TempDir dir;
  struct Case {
    const char *config, *depths, *parameters;
  };
  const std::string llama70 =
      R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
  const std::string code34 =
      R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 22016, "num_hidden_layers": 48, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "hidden_act": "silu"})";
  // The paper's counts: 536.9M, 805.4M, 1.88B
  for (const Case& c : {Case{code34.c_str(), "16,32", "536936450"},
                        {llama70.c_str(), "20,40,60", "805404675"},
                        {llama70.c_str(), "10,20,30,40,50,60,70", "1879277575"}}) {
    INFO(c.depths);
    dir.write("config.json", c.config);
    Process plan({std::string(DEX_BINARY_DIR) + "/dex", "train", "--model", dir / "config.json",
                  "--depths", c.depths, "--dry-run", "--world-size", "8", "--teraflops", "400"},
                 dir / "log");
    CHECK(plan.wait(kPatience) == 0);
    INFO(plan.log());
    CHECK(plan.log().find(std::string("\"parameters\":") + c.parameters + ",") !=
          std::string::npos);
    CHECK(plan.log().find("\"ranks\":8") != std::string::npos);
  }
}

TEST_CASE("a second run on a directory in use ends with 75 and leaves the first alone") {
  Training run;
  run.options["--steps"] = "60";
  run.options["--save-every"] = "3";
  auto first = run.start_all("out", 1);
  run.wait_for_steps("out");
  first[0]->send(SIGSTOP);
  auto second = run.start("out", 0, 1, {"--resume"});
  CHECK(second->wait(kPatience) == 75);
  CHECK(second->log().find("out: another run uses it") != std::string::npos);
  first[0]->send(SIGCONT);
  CHECK(first[0]->wait(kPatience) == 0);
}
