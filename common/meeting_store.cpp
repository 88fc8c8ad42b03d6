#include "common/meeting_store.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <thread>

#include "common/error.h"
#include "common/within.h"

namespace dex {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr auto kWordTime = std::chrono::milliseconds(300);

std::chrono::milliseconds left_until(Clock::time_point end) {
  return std::max(std::chrono::milliseconds(1),
                  std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// One attempt. The library's own pauses between attempts grow long while it waits for a server that starts late.
Store try_connect(const RankEnvironment& place, bool serves, Clock::time_point end) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = left_until(end);
  const auto store = within(end, [options, address = place.address]() -> Store {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  });
  return store ? *store : Store();
}

Store connect(const RankEnvironment& place, Clock::time_point end) {
  const bool serves = place.rank == 0 && !place.launcher_has_store;
  std::string reason = "nobody answers";
  for (auto patience = std::chrono::milliseconds(1000); Clock::now() < end; patience *= 2) {
    try {
      if (Store store = try_connect(place, serves, serves ? end : std::min(end, Clock::now() + patience))) return store;
    } catch (const std::exception& error) {
      reason = first_line(error.what());
      if (serves) break;
      std::this_thread::sleep_for(kPause);
    }
  }
  require(reason.find("EADDRINUSE") == std::string::npos, ExitCode::temporary, "rank {}, joining: port {} is in use: {}",
          place.rank, place.port, reason);
  fail(ExitCode::temporary, "rank {}, joining: no store at {}:{} (MASTER_ADDR, MASTER_PORT), where rank 0 should be: {}",
       place.rank, place.address, place.port, reason);
}

std::string key_of(const char* kind, int rank) { return fmt::format("{}/{}", kind, rank); }

}  // namespace

MeetingStore::MeetingStore(const RankEnvironment& place, Clock::time_point end) : place_(place) {
  const Store store = connect(place, end);
  store->setTimeout(left_until(end));
  store_ = c10::make_intrusive<c10d::PrefixStore>("dex/" + place.attempt, store);
}

void MeetingStore::wait_for_all(Clock::time_point end) {
  std::vector<int> missing;
  try {
    const auto came = within(end, [store = store_, rank = place_.rank] {
      store->set(key_of("here", rank), std::vector<std::uint8_t>{1});
      return true;
    });
    for (int rank = 0; rank < place_.world; ++rank) missing.push_back(rank);
    while (came && Clock::now() < end) {
      std::erase_if(missing, [&](int rank) {
        return within(end, [store = store_, rank] { return store->check({key_of("here", rank)}); })
            .value_or(false);
      });
      if (missing.empty()) return;
      std::this_thread::sleep_for(kPause);
    }
  } catch (const std::exception& error) {
    fail(ExitCode::temporary, "rank {}, joining: the store of rank 0 at {}:{} is gone: {}", place_.rank,
         place_.address, place_.port, first_line(error.what()));
  }
  fail(ExitCode::temporary, "rank {}, joining: of {} ranks these have not come: {}", place_.rank,
       place_.world, fmt::join(missing, ", "));
}

void MeetingStore::leave_word(const std::string& text) noexcept {
  try {
    within(Clock::now() + kWordTime, [store = store_, key = key_of("word", place_.rank), text] {
      store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
      return true;
    });
  } catch (const std::exception&) {  // the store went with its rank
  }
}

std::optional<std::string> MeetingStore::word_of(int rank) noexcept {
  try {
    const auto word = within(Clock::now() + kWordTime,
                             [store = store_, key = key_of("word", rank)]() -> std::optional<std::string> {
                               if (!store->check({key})) return std::nullopt;
                               const auto bytes = store->get(key);
                               return std::string(bytes.begin(), bytes.end());
                             });
    return word ? *word : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace dex
