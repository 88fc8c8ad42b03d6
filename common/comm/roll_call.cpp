#include "common/comm/roll_call.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

namespace dex {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kBeat = milliseconds(250);  // between two renewals
constexpr auto kWatch =
    milliseconds(2000);  // a claim that nobody renews for so long is left behind
constexpr auto kPause = milliseconds(20);
constexpr const char *kStopped = "stopped", *kHeard = "heard";

std::string key_of(int rank) { return fmt::format("here/{}", rank); }

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

struct RollCall::Claim {
  std::string host, source;
  int pid = 0, world = 0;
  bool joined = false;

  explicit Claim(const std::string& text) try {
    const auto json = nlohmann::json::parse(text);
    host = json.at("host"), source = json.at("source");
    pid = json.at("pid"), world = json.at("world");
    joined = json.at("joined");
  } catch (const nlohmann::json::exception&) {
    fail(ExitCode::usage, "the store holds no claim of a rank as this version of dex leaves it");
  }
  std::string who() const { return fmt::format("process {} on {}", pid, host); }
};

RollCall::RollCall(c10::intrusive_ptr<c10d::Store> store, const RankEnvironment& place)
    : store_(std::move(store)),
      place_(place),
      id_(fmt::format("{:08x}{:08x}", std::random_device()(), std::random_device()())),
      host_(host_name()),
      missing_(std::size_t(place.world)) {
  std::iota(missing_.begin(), missing_.end(), 0);
}

std::vector<int> RollCall::look() {
  heed();
  if (mine_.empty()) claim();
  renew();
  std::erase_if(missing_, [&](int rank) {
    if (!store_->check({key_of(rank)})) return false;
    compare(rank);
    return true;
  });
  if (missing_.empty()) hold(/*joined=*/true);
  return missing_;
}

void RollCall::claim() {
  const std::string wanted = text(false), seen = replace("", wanted);
  if (seen != wanted) {
    const Claim other(seen);
    require(!other.joined, ExitCode::temporary,
            "rank {}, joining: at {}:{} {} has joined as rank {} before; another run there, or one "
            "that has lost this rank",
            place_.rank, place_.address, place_.port, other.who(), place_.rank);
    if (renewed(seen)) twice(other);
    const std::string now = replace(seen, wanted);  // what a process that is gone left behind
    if (now != wanted) twice(Claim(now));
  }
  mine_ = wanted;
  renewed_ = Clock::now();
}

void RollCall::renew() {
  if (Clock::now() < renewed_ + kBeat) return;
  ++beat_;
  hold(/*joined=*/false);
}

void RollCall::hold(bool joined) {
  const std::string wanted = text(joined), seen = replace(mine_, wanted);
  if (seen != wanted) twice(Claim(seen));
  mine_ = wanted;
  renewed_ = Clock::now();
}

void RollCall::heed() {
  if (!store_->check({kStopped})) return;
  const std::string posted = read(kStopped);
  count_as_told();
  fail(ExitCode(std::atoi(posted.c_str())), "rank {}, joining: {}", place_.rank,
       posted.substr(posted.find(' ') + 1));
}

void RollCall::compare(int rank) {
  const Claim other(read(key_of(rank)));
  if (other.world == place_.world) return;
  stop(ExitCode::usage,
       fmt::format("rank {} ({}) was started as one of {}, as {} says, but rank {} ({}) as one of "
                   "{}, as {} says",
                   place_.rank, me(), place_.world, place_.source, rank, other.who(), other.world,
                   other.source));
}

bool RollCall::renewed(const std::string& seen) {
  for (const auto end = Clock::now() + kWatch; Clock::now() < end;
       std::this_thread::sleep_for(kPause))
    if (read(key_of(place_.rank)) != seen) return true;
  return false;
}

std::optional<std::string> RollCall::twin() {
  const std::string key = key_of(place_.rank);
  for (const auto end = Clock::now() + kWatch; !store_->check({key});
       std::this_thread::sleep_for(kPause))
    if (Clock::now() > end) return std::nullopt;
  const std::string seen = read(key);
  const Claim other(seen);
  if (other.joined) return other.who();
  if (renewed(seen)) twice(other);
  return std::nullopt;
}

void RollCall::refuse(ExitCode code, const std::string& reason) {
  const std::string key = key_of(place_.rank);
  if (mine_.empty() && store_->check({key}) && Claim(read(key)).joined) return;  // another run's
  const std::string who =
      place_.rank == kUnknownRank ? me() : fmt::format("rank {} ({})", place_.rank, me());
  post(code, fmt::format("{} does not join: {}", who, reason));
}

void RollCall::twice(const Claim& other) {
  stop(ExitCode::usage, fmt::format("rank {} is there twice: {}, as {} says, and {}, as {} says",
                                    place_.rank, other.who(), other.source, me(), place_.source));
}

void RollCall::stop(ExitCode code, const std::string& reason) {
  post(code, reason);
  fail(code, "rank {}, joining: {}", place_.rank, reason);
}

// The first one counts.
void RollCall::post(ExitCode code, const std::string& reason) {
  store_->compareSet(kStopped, {}, bytes_of(fmt::format("{} {}", int(code), reason)));
  count_as_told();
}

void RollCall::count_as_told() {
  if (!told_.exchange(true)) store_->add(kHeard, 1);
}

bool RollCall::all_have_heard() { return store_->add(kHeard, 0) >= place_.world; }

std::string RollCall::me() const { return fmt::format("process {} on {}", getpid(), host_); }

std::string RollCall::text(bool joined) const {
  return nlohmann::json{{"host", host_},         {"pid", getpid()},         {"id", id_},
                        {"world", place_.world}, {"source", place_.source}, {"joined", joined},
                        {"beat", beat_}}
      .dump();
}

std::string RollCall::replace(const std::string& expected, const std::string& wanted) {
  const auto now = store_->compareSet(key_of(place_.rank), bytes_of(expected), bytes_of(wanted));
  return {now.begin(), now.end()};
}

std::string RollCall::read(const std::string& key) {
  const auto bytes = store_->get(key);
  return {bytes.begin(), bytes.end()};
}

}  // namespace dex
