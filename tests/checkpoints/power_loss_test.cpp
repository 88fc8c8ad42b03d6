// The power fails at any moment of a run that saves. Then the proof that this test can fail: the
// same run with each of its syncs left out, or its order changed, is caught.
#include "tests/support/power_loss.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "common/base/error.h"
#include "tests/checkpoints/saves.h"
#include "tests/support/scale.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using test::FileCall;
namespace fs = std::filesystem;

namespace {

using Record = std::vector<FileCall>;
constexpr int kKeep = 2;

using Save = std::function<void(const fs::path& root, std::int64_t step)>;

void right_save(const fs::path& root, std::int64_t step) { test::save_step(root, step, kKeep); }

// Saves steps 1 .. 5 into a directory two levels below `dir` that is not there yet, and notes each
// when it is done.
Record record_run(const fs::path& dir, const Save& save) {
  fs::create_directory(dir);
  test::record_file_calls(dir);
  for (std::int64_t step = 1; step <= 5; ++step) {
    save(dir / "out/checkpoints", step);
    test::note_in_record(std::to_string(step));
  }
  return test::stop_recording();
}

// What is wrong with what a power cut left, if `saved` was the last step that was done; "" when
// nothing is.
std::string fault_of(const fs::path& dir, std::int64_t saved) {
  const fs::path root = dir / "out/checkpoints";
  const CheckpointSearch search = newest_checkpoint(root);
  if (search.step.value_or(0) < saved) return "step " + std::to_string(saved) + " is lost";
  if (search.step && read_file(search.dir / "weights") != test::weights_of(*search.step))
    return "other bytes than were saved";
  if (!search.passed_over.empty()) return search.passed_over.front();
  if (fs::exists(root))
    for (const std::string& name : test::names_in(root))
      if (name.starts_with("step-")) verify_checkpoint(root / name);
  const std::int64_t next = search.step.value_or(0) + 1;
  test::save_step(root, next, kKeep);
  const CheckpointSearch again = newest_checkpoint(root);
  if (again.step != next) return "the next save did not help";
  for (const std::string& name : test::names_in(root))
    if (!name.starts_with("step-")) return name + " is left";
  return "";
}

struct Verdict {
  int replays = 0;
  std::map<std::string, int> faults;
};

// Cuts the power up to `count` times, at a random operation and with a random share of what was not
// synced.
Verdict cut_power(const fs::path& recorded, const Record& record, int count, bool stop_at_fault) {
  std::mt19937 random(3);
  Verdict decision;
  const double shares[] = {0, 1, 0.5, 0.1, 0.9};
  while (decision.replays < count && !(stop_at_fault && !decision.faults.empty())) {
    const std::size_t end = random() % (record.size() + 1);
    test::Disk disk(recorded);
    std::int64_t saved = 0;
    for (std::size_t i = 0; i < end; ++i) {
      disk.apply(record[i]);
      if (record[i].kind == FileCall::note) saved = std::stoll(record[i].target);
    }
    const test::TempDir after(test::memory_directory());
    disk.restore(after / "disk", shares[random() % std::size(shares)], random);
    ++decision.replays;
    std::string fault;
    try {
      fault = fault_of(after / "disk", saved);
    } catch (const Error& error) {
      fault = error.what();
    }
    if (!fault.empty()) ++decision.faults[fault.substr(0, 200)];
  }
  return decision;
}

bool is_sync(const FileCall& call, const std::string& part) {
  return call.kind == FileCall::sync && call.path.find(part) != std::string::npos;
}
bool is_sync_of_directory(const FileCall& call, const std::string& end) {
  return call.kind == FileCall::sync && call.path.ends_with(end);
}

Record without(Record record, const std::function<bool(const FileCall&)>& left_out) {
  const auto before = record.size();
  std::erase_if(record, left_out);
  REQUIRE(record.size() < before);
  return record;
}

// Without the sync between the renaming of what is pruned and its removal.
Record without_sync_of_doomed(const Record& record) {
  Record kept;
  for (const FileCall& call : record)
    if (call.kind != FileCall::sync || kept.empty() ||
        !kept[kept.size() - 2].target.ends_with(".doomed"))
      kept.push_back(call);
  REQUIRE(kept.size() < record.size());
  return kept;
}

// As a save would be that fills step-N itself instead of a temporary that is renamed.
void save_in_place(const fs::path& root, std::int64_t step) {
  const test::TempDir elsewhere(test::memory_directory());
  test::save_step(elsewhere.path(), step);
  const fs::path name = "step-" + std::to_string(step);
  make_directory(root / name);
  for (const auto& file : {"weights", "state.json", "MANIFEST.json"})
    write_file(root / name / file, read_file(elsewhere / name / file));
}

void save_after_removing_the_older(const fs::path& root, std::int64_t step) {
  fs::remove_all(root / ("step-" + std::to_string(step - 1)));
  right_save(root, step);
}

void save_and_prune_without_renaming(const fs::path& root, std::int64_t step) {
  test::save_step(root, step, 100);
  fs::remove_all(root / ("step-" + std::to_string(step - kKeep)));
}

}  // namespace

TEST_CASE("a power cut at any moment leaves the newest checkpoint whole and none torn",
          "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const Record run = record_run(dir / "disk", right_save);
  const Verdict decision = cut_power(dir / "disk", run, test::times(500, 5000), false);
  for (const auto& [fault, count] : decision.faults) FAIL_CHECK(count << " times: " << fault);
  CHECK(decision.replays >= 500);
}

TEST_CASE("a save that leaves out a sync or the order of its steps does not outlast power cuts",
          "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const Record run = record_run(dir / "disk", right_save);
  const auto caught = [&](const char* what, const Record& wrong) {
    const Verdict decision = cut_power(dir / "disk", wrong, 600, true);
    INFO(what);
    CHECK_FALSE(decision.faults.empty());
  };
  const auto caught_save = [&](const char* what, const Save& save) {
    fs::remove_all(dir / "disk");
    caught(what, record_run(dir / "disk", save));
  };
  caught("no sync of weights", without(run, [](const auto& c) { return is_sync(c, "/weights"); }));
  caught("no sync of state.json",
         without(run, [](const auto& c) { return is_sync(c, "/state.json"); }));
  caught("no sync of the manifest",
         without(run, [](const auto& c) { return is_sync(c, "/MANIFEST.json"); }));
  caught("no sync of the step's names",
         without(run, [](const auto& c) { return is_sync_of_directory(c, ".tmp"); }));
  caught("no sync of the step's own name",
         without(run, [](const auto& c) { return is_sync_of_directory(c, "/checkpoints"); }));
  caught("no sync of made parents", without(run, [](const auto& c) {
           return is_sync_of_directory(c, "/disk") || is_sync_of_directory(c, "/out");
         }));
  caught("no sync before pruned steps are removed", without_sync_of_doomed(run));
  caught_save("no temporary", save_in_place);
  caught_save("the older removed first", save_after_removing_the_older);
  caught_save("pruned without renaming", save_and_prune_without_renaming);
}
