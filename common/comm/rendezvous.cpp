#include "common/comm/rendezvous.h"

#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/base/error.h"
#include "common/base/start_thread.h"
#include "common/base/within.h"
#include "common/comm/connection_deadline.h"
#include "common/comm/process_group.h"
#include "common/comm/roll_call.h"

namespace dex {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr auto kProbeTime = std::chrono::seconds(2);
constexpr auto kNameTime = std::chrono::seconds(60);
constexpr auto kFailureTime = std::chrono::milliseconds(300);
constexpr auto kAnswerTime = std::chrono::milliseconds(3000);   // of a store that is there
constexpr auto kRefusalTime = std::chrono::milliseconds(6000);  // for the others to come and hear

std::chrono::milliseconds left_until(Clock::time_point end) {
  return std::max(std::chrono::milliseconds(1),
                  std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()));
}

constexpr const char* kSilent = "nobody answers";

struct Probe {
  bool answered = false;
  std::string unknown;  // why the host's name has no address
};

Probe probe(const std::string& host, std::uint16_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) return {false, gai_strerror(error)};
  Probe result;
  for (const addrinfo* at = found; at && !result.answered; at = at->ai_next) {
    const int number = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (number < 0) continue;
    result.answered = ::connect(number, at->ai_addr, at->ai_addrlen) == 0;
    close(number);
  }
  freeaddrinfo(found);
  return result;
}

// Returns why nobody answers, or nothing once somebody does; who serves itself needs no more than a
// known name. The library's own attempts pause longer and longer for a server that starts late, and
// each that fails logs a stack trace. A pod's name may become known a while after the pods that ask
// for it; one that does not is a mistake.
std::string wait_for_server(const RankEnvironment& place, bool serves, Clock::time_point end) {
  const auto names_end = std::min(end, Clock::now() + kNameTime);
  std::string unknown;
  for (; Clock::now() < end; std::this_thread::sleep_for(kPause)) {
    const auto seen =
        within(std::min(end, Clock::now() + kProbeTime),
               [host = place.address, port = place.port] { return probe(host, port); });
    if (!seen) continue;
    if (seen->answered || (serves && seen->unknown.empty())) return "";
    if (!seen->unknown.empty() && unknown.empty())
      spdlog::warn("{} has no address yet: {}", place.address, seen->unknown);
    unknown = seen->unknown;
    if (!unknown.empty() && Clock::now() >= names_end) break;
  }
  return unknown.empty() ? kSilent : unknown;
}

bool serves(const RankEnvironment& place) { return place.rank == 0 && !place.launcher_has_store; }

Store keys_of_attempt(const RankEnvironment& place, const Store& store) {
  return c10::make_intrusive<c10d::PrefixStore>("dex/" + place.attempt, store);
}

Store open_store(const RankEnvironment& place, bool server, Clock::time_point end) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = left_until(end);
  const auto store = within(end, [options, host = place.address]() -> Store {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  });
  return store ? *store : Store();
}

// Whose port it is that rank 0 wants: "" when it is no rank 0's.
std::string occupant(const RankEnvironment& place, Clock::time_point end) {
  try {
    const auto soon = std::min(end, Clock::now() + kAnswerTime);
    const Store store = open_store(place, /*server=*/false, soon);
    if (!store) return "";
    const auto who = within(std::min(end, Clock::now() + 2 * kAnswerTime), [place, store] {
      return RollCall(keys_of_attempt(place, store), place).twin();
    });
    return who && *who ? fmt::format(" by rank 0 of another run, {}", **who) : "";
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    return "";
  }
}

Store connect(const RankEnvironment& place, Clock::time_point end) {
  // the library's store answers a peer that is gone as if it were there
  std::signal(SIGPIPE, SIG_IGN);
  std::string reason = wait_for_server(place, serves(place), end);
  try {
    if (reason.empty()) {
      reason = kSilent;
      if (const Store store = open_store(place, serves(place), end)) return store;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    reason = first_line(error.what());
  }
  if (reason.find("EADDRINUSE") != std::string::npos)
    fail(ExitCode::temporary, "rank {}, joining: port {} is in use{}: {}", place.rank, place.port,
         occupant(place, end), reason);
  fail(ExitCode::temporary,
       "rank {}, joining: no store at {}:{} (MASTER_ADDR, MASTER_PORT), where rank 0 should be: {}",
       place.rank, place.address, place.port, reason);
}

// Whoever serves goes last, so that the others hear why.
void linger(const std::shared_ptr<RollCall>& call, Clock::time_point end) noexcept {
  try {
    while (Clock::now() < end &&
           !within(end, [call] { return call->all_have_heard(); }).value_or(true))
      std::this_thread::sleep_for(kPause);
  } catch (const std::exception&) {
  }
}

std::string key_of(const char* kind, int rank) { return fmt::format("{}/{}", kind, rank); }

}  // namespace

Rendezvous::Rendezvous(const RankEnvironment& place, Clock::time_point end) : place_(place) {
  const Store store = connect(place, end);
  store->setTimeout(left_until(end));
  store_ = keys_of_attempt(place, store);
  call_ = std::make_shared<RollCall>(store_, place);
}

void Rendezvous::wait_for_all(Clock::time_point end) {
  std::vector<int> missing;
  try {
    for (; Clock::now() < end; std::this_thread::sleep_for(kPause)) {
      const auto seen = within(end, [call = call_] { return call->look(); });
      if (!seen) break;
      if (seen->empty()) return;
      missing = *seen;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::temporary, "rank {}, joining: the store of rank 0 at {}:{} is gone: {}",
         place_.rank, place_.address, place_.port, first_line(error.what()));
  }
  fail(ExitCode::temporary, "rank {}, joining: of {} ranks these have not come: {}", place_.rank,
       place_.world, fmt::join(missing, ", "));
}

void Rendezvous::heed() {
  try {
    if (!heeding_.valid()) {  // looks that hang must not pile up
      auto task = std::make_shared<std::packaged_task<void()>>([call = call_] { call->heed(); });
      start_thread("a look at what ranks have posted", [task] { (*task)(); }).detach();
      heeding_ = task->get_future();
    }
    if (heeding_.wait_for(kFailureTime) == std::future_status::ready)
      std::exchange(heeding_, {}).get();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // the store went with its rank
  }
}

void Rendezvous::give_up(const Error& error, Clock::time_point end) noexcept {
  if (Clock::now() >= end) return;  // so do the others
  const auto tell = [call = call_, code = error.code(), reason = std::string(error.what())] {
    call->refuse(code, reason);
    return true;
  };
  try {
    try {
      within(std::min(end, Clock::now() + kAnswerTime), tell);
    } catch (const Error&) {  // no thread for it
      const ConnectionDeadline deadline(place_.port, kAnswerTime);
      tell();
    }
  } catch (const std::exception&) {
  }
  if (serves(place_)) linger(call_, std::min(end, Clock::now() + kAnswerTime));
}

void Rendezvous::refuse(const RankEnvironment& place, ExitCode code,
                        const std::string& reason) noexcept {
  try {
    const auto end = Clock::now() + kRefusalTime;
    try {
      Rendezvous(place, end).give_up(Error(code, reason), end);
    } catch (const Error&) {  // there may be no thread to wait for the store in
      if (serves(place)) return;
      c10d::TCPStoreOptions options;
      options.port = place.port;
      options.waitWorkers = false;
      options.timeout = kAnswerTime;
      const ConnectionDeadline deadline(place.port, kAnswerTime);
      RollCall(keys_of_attempt(place, c10::make_intrusive<c10d::TCPStore>(place.address, options)),
               place)
          .refuse(code, reason);
    }
  } catch (const std::exception&) {  // then nobody waits there
  }
}

void Rendezvous::post_failure(const std::string& text) noexcept {
  try {
    within(Clock::now() + kFailureTime,
           [store = store_, key = key_of("failure", place_.rank), text] {
             store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
             return true;
           });
  } catch (const std::exception&) {  // the store went with its rank
  }
}

std::optional<std::string> Rendezvous::failure_of(int rank) noexcept {
  try {
    const auto failure =
        within(Clock::now() + kFailureTime,
               [store = store_, key = key_of("failure", rank)]() -> std::optional<std::string> {
                 if (!store->check({key})) return std::nullopt;
                 const auto bytes = store->get(key);
                 return std::string(bytes.begin(), bytes.end());
               });
    return failure ? *failure : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace dex
