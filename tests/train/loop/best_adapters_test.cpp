#include "train/loop/best_adapters.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

ExitScores with_hops(double hops) {
  return {.rows = 10, .agreement = {0.5, 0.5}, .decs_hops = hops};
}

std::int64_t recorded_step(const fs::path& dir) {
  return nlohmann::json::parse(read_file(dir / "best.json"))["step"];
}

std::size_t names_in(const fs::path& dir) {
  return std::size_t(std::distance(fs::directory_iterator(dir), fs::directory_iterator{}));
}

}  // namespace

TEST_CASE("the adapters with the fewest hops are kept, the earlier ones in a draw") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  BestAdapters best(dir / "best", true);
  CHECK_FALSE(best.step());
  for (const auto& [step, hops] : {std::pair{0, 2.5}, {10, 2.25}, {20, 2.25}, {30, 2.4}}) {
    best.offer(step, with_hops(hops), a.config, a.stored);
    CHECK(best.step() == (step == 0 ? 0 : 10));
    CHECK(recorded_step(dir / "best") == *best.step());
  }
  CHECK(read_adapter_file(dir / "best").config.depths == a.config.depths);
  CHECK(names_in(dir.path()) == 1);  // nothing half-made is left
}

TEST_CASE("a run that goes on knows its best so far, a new one forgets it") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  BestAdapters(dir / "best", true).offer(10, with_hops(2.25), a.config, a.stored);
  fs::create_directory(dir / ".best.tmp");  // a kill half-way
  BestAdapters again(dir / "best", false);
  CHECK(again.step() == 10);
  again.offer(20, with_hops(2.25), a.config, a.stored);
  CHECK(again.step() == 10);
  again.offer(30, with_hops(2), a.config, a.stored);
  CHECK(recorded_step(dir / "best") == 30);
  CHECK(names_in(dir.path()) == 1);
  CHECK_FALSE(BestAdapters(dir / "best", true).step());
  CHECK_FALSE(fs::exists(dir / "best"));
}

TEST_CASE("damaged best adapters count as none") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  BestAdapters(dir / "best", true).offer(10, with_hops(2.25), a.config, a.stored);
  const std::string name = GENERATE("best.json", "adapter_model.safetensors");
  std::string bytes = read_file(dir / "best" / name);
  write_file(dir / "best" / name, bytes.substr(0, bytes.size() - 3));
  BestAdapters best(dir / "best", false);
  CHECK_FALSE(best.step());
  best.offer(20, with_hops(3), a.config, a.stored);
  CHECK(recorded_step(dir / "best") == 20);
}
