// Altered and cut checkpoints and adapters: refused, or read as what was written; in bounded
// memory.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoints/adapter_file.h"
#include "common/base/error.h"
#include "tests/checkpoints/saves.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/altered.h"
#include "tests/support/child.h"
#include "tests/support/file_faults.h"
#include "tests/support/scale.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

constexpr rlim_t kMemory = rlim_t{64} << 20;
enum Answer { same = 0, refused = 1, changed = 2, broken = 3 };

// Overwritten in place: neither renamed nor synced.
void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Reads one altered copy after the other in one child with little memory. Counts refusals through
// the exit code's place: a file, since they are many.
struct Tally {
  int same = 0, refused = 0;
};
Tally read_altered(const fs::path& scratch, const fs::path& path,
                   const std::vector<std::string>& copies, const std::function<Answer()>& read) {
  const std::string whole = read_file(path);
  const int code = test::code_in_child([&] {
    test::limit_memory(kMemory);
    Tally tally;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      overwrite(path, copies[i]);
      const Answer answer = read();
      if (answer == changed || answer == broken) {
        overwrite(scratch, "copy " + std::to_string(i) +
                               (answer == changed ? " was read as something else"
                                                  : " is refused in another way than wanted"));
        return 1;
      }
      ++(answer == same ? tally.same : tally.refused);
    }
    overwrite(scratch, std::to_string(tally.same) + " " + std::to_string(tally.refused));
    return 0;
  });
  INFO(path.filename() << ": " << (fs::exists(scratch) ? read_file(scratch) : "no result"));
  REQUIRE(code == 0);
  overwrite(path, whole);
  Tally tally;
  std::ifstream(scratch) >> tally.same >> tally.refused;
  return tally;
}

std::vector<std::string> altered_copies(const std::string& whole, int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> copies;
  for (int i = 0; i < count; ++i) copies.push_back(test::altered(whole, random));
  return copies;
}

std::vector<std::string> cuts(const std::string& whole) {
  std::vector<std::string> copies;
  for (std::size_t size = 0; size < whole.size(); ++size) copies.push_back(whole.substr(0, size));
  return copies;
}

const char* const kCheckpointFiles[] = {"MANIFEST.json", "state.json", "weights.safetensors"};

// As training writes it, but small.
void save_small(const fs::path& root) {
  const test::AdapterTensors tensors;
  save_checkpoint(root, 7, 1, [&](const fs::path& dir) {
    write_safetensors(dir / "weights.safetensors", tensors.stored, {});
    write_file(dir / "state.json",
               nlohmann::json{
                   {"step", 7}, {"tokens", 1234}, {"run", {{"seed", 3}, {"learning_rate", 1e-3}}}}
                       .dump(2) +
                   "\n");
  });
}

// Whether the checkpoint is still the one, to the byte of what a run reads from it.
Answer read_checkpoint(const fs::path& root, const std::string& weights, const std::string& state) {
  const CheckpointSearch search = newest_checkpoint(root);
  if (!search.step)
    return search.passed_over.size() == 1 &&
                   search.passed_over[0].find(root.string()) != std::string::npos
               ? refused
               : broken;
  const bool equal = *search.step == 7 &&
                     read_file(search.dir / "weights.safetensors") == weights &&
                     read_file(search.dir / "state.json") == state;
  return equal ? same : changed;
}

Answer read_adapters(const fs::path& dir, const test::AdapterTensors& wanted) {
  try {
    const AdapterFile file = read_adapter_file(dir);
    const AdapterConfig &seen = file.config, &c = wanted.config;
    if (file.weights.tensors().size() != wanted.stored.size()) return changed;
    for (const auto& [name, tensor] : wanted.stored)
      if (!std::equal(tensor.bytes.begin(), tensor.bytes.end(), file.weights.at(name).bytes.begin(),
                      file.weights.at(name).bytes.end()))
        return changed;
    const bool sizes =
        seen.depths == c.depths && seen.hidden_size == c.hidden_size && seen.width == c.width;
    return sizes && seen.model_fingerprint == c.model_fingerprint &&
                   seen.data_digest == c.data_digest && seen.tau == c.tau &&
                   seen.model_tensors == c.model_tensors
               ? same
               : changed;
  } catch (const Error& error) {
    return error.code() == ExitCode::io &&
                   std::string(error.what()).find(dir.string()) != std::string::npos
               ? refused
               : broken;
  }
}

}  // namespace

TEST_CASE("altered and cut checkpoints are passed over or unchanged in meaning", "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  save_small(dir / "c");
  const std::string weights = read_file(dir / "c/step-7/weights.safetensors"),
                    state = read_file(dir / "c/step-7/state.json");
  const auto read = [&] { return read_checkpoint(dir / "c", weights, state); };
  for (const char* name : kCheckpointFiles) {
    const fs::path path = dir / "c/step-7" / name;
    const bool manifest = std::string(name) == "MANIFEST.json";
    const auto copies = altered_copies(read_file(path), test::times(150, 3400), 11);
    const Tally tally = read_altered(dir / "tally", path, copies, read);
    CHECK(tally.same + tally.refused == int(copies.size()));
    // white space of the manifest means nothing; of other files every byte counts
    CHECK((manifest || tally.same == 0));
    const auto cut = cuts(read_file(path));
    const Tally of_cuts = read_altered(dir / "tally", path, cut, read);
    CHECK(of_cuts.same == (manifest ? 1 : 0));  // its last line end
  }
}

TEST_CASE("altered and cut adapters are refused or unchanged in meaning", "[faults]") {
  const test::TempDir dir(test::memory_directory());
  const test::AdapterTensors tensors;
  write_adapter_file(dir / "a", tensors.config, tensors.stored);
  const auto read = [&] { return read_adapters(dir / "a", tensors); };
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path path = dir / "a" / name;
    const auto copies = altered_copies(read_file(path), test::times(200, 5000), 12);
    const Tally tally = read_altered(dir / "tally", path, copies, read);
    CHECK(tally.same + tally.refused == int(copies.size()));
    CHECK(tally.refused > int(copies.size()) * 8 / 10);
    const Tally of_cuts = read_altered(dir / "tally", path, cuts(read_file(path)), read);
    CHECK(of_cuts.same <= 1);
  }
}

TEST_CASE("the files of one checkpoint never pass for those of another", "[faults]") {
  const test::TempDir dir(test::memory_directory());
  for (std::int64_t step : {1, 2}) test::save_step(dir / "c", step, 5);
  for (const char* name : {"weights", "state.json", "MANIFEST.json"}) {
    const std::string newer = read_file(dir / "c/step-2" / name);
    write_file(dir / "c/step-2" / name, read_file(dir / "c/step-1" / name));
    const CheckpointSearch search = newest_checkpoint(dir / "c");
    INFO(name);
    CHECK(search.step == 1);
    CHECK(search.passed_over.size() == 1);
    write_file(dir / "c/step-2" / name, newer);
  }
}
