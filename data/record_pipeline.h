// Every record of a ShareGPT file through a pure function on several threads, its results taken in
// the order of the file.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "common/base/progress.h"
#include "data/prepare.h"
#include "data/sharegpt_reader.h"
#include "data/task_queue.h"

namespace dex {

// A file that is going to be refused for its end is refused before its text is read for long: its
// last byte tells.
void refuse_cut_file(const PrepareOptions& options);
// Error(io) when the reader met a cut that is not allowed; otherwise says how many records are
// taken.
void judge_cut(const SharegptReader& reader, const PrepareOptions& options);

// `work` runs on any thread; `take` returns a note for the progress line.
template <typename Outcome>
void each_record(SharegptReader& reader, const PrepareOptions& options,
                 const std::function<Outcome(const RawRecord&)>& work,
                 const std::function<std::string(Outcome)>& take) {
  constexpr std::size_t kRecordsInFlight = 16;  // per thread
  Progress progress("prepare", std::int64_t(reader.file_size()) / 1000, "kB");
  std::deque<std::future<Outcome>> pending;  // in the order of the file
  TaskQueue pool(options.threads);
  const std::size_t most = kRecordsInFlight * std::size_t(options.threads);
  std::uint64_t taken = 0;
  const auto next = [&] {
    return options.limit && taken >= *options.limit ? std::nullopt : reader.next();
  };
  for (;;) {
    while (pending.size() < most) {
      auto record = next();
      if (!record) break;
      ++taken;
      pending.push_back(pool.submit([record = std::move(*record), &work] { return work(record); }));
    }
    if (pending.empty()) break;
    const std::string note = take(pending.front().get());
    pending.pop_front();
    progress.update(std::int64_t(reader.offset()) / 1000, note);
  }
  judge_cut(reader, options);
}

}  // namespace dex
