// The programs that only measure: what they cannot do is told as dex tells it.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using dex::test::Outcome;
using dex::test::run_program;

namespace {

void check_refused(const std::string& name, const std::string& arguments, int code,
                   const std::string& words) {
  const Outcome outcome = run_program(DEX_BINARY_DIR "/" + name, arguments);
  CAPTURE(name, arguments, outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.rfind(name + ": error: ", 0) == 0);
  CHECK(outcome.err.find(words) != std::string::npos);
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("the kernel bench refuses sizes that are none, or too large, and other words") {
  for (const char* bad : {"0 8", "-1 8", "x 8", "8x 8", "'' 8", "1.5 8", "99999999999 8"})
    check_refused("dex_kernel_bench", bad, 2, "OUT is");
  for (const char* bad : {"8 0", "8 x", "8 99999999999", "65536 32768"})
    check_refused("dex_kernel_bench", bad, 2, "IN is");
  for (const char* bad : {"large", "8", "8 8 8", "small 8 8"})
    check_refused("dex_kernel_bench", bad, 2, "wanted dex_kernel_bench [small | OUT IN]");
}

TEST_CASE("benches tell errors in one line, with dex's exit codes") {
  const dex::test::TempDir dir;
  const std::string model = dex::test::TinyModel{}.write(dir / "m").string(),
                    none = (dir / "none").string();
  for (const char* bad : {"0", "-3", "x", "1 1"})
    check_refused("dex_invariance_bench", bad, 2, "PAIRS");
  check_refused("dex_round_bench", "", 2, "wanted dex_round_bench MODEL");
  check_refused("dex_round_bench", none, 2, "none");
  check_refused("dex_round_bench", model + " f16", 2, "f16");
  check_refused("dex_round_bench", model + " f32 0", 2, "PAIRS is \"0\"");
  check_refused("dex_train_bench", model, 2, "wanted dex_train_bench MODEL");
  check_refused("dex_train_bench", none + " f32 2 8 2", 2, "none");
  check_refused("dex_train_bench", model + " f32 9 8 2", 2, "9");
  check_refused("dex_train_bench", model + " f32 2 1 2", 2, "LENGTH is \"1\"");
  check_refused("dex_train_bench", model + " f32 2 8 0", 2, "SAMPLES is \"0\"");
  check_refused("dex_train_bench", model + " f32 2 8 2 '' x", 2, "STEPS is \"x\"");
  check_refused("dex_train_bench", model + " f32 2 8 2 " + none, 2, "none");
  std::filesystem::resize_file(dir / "m/model.safetensors", 1000);
  check_refused("dex_round_bench", model, 74, "model.safetensors");
  check_refused("dex_train_bench", model + " f32 2 8 2", 74, "model.safetensors");
}

TEST_CASE("the bench of rounds runs to its end") {
  const dex::test::TempDir dir;
  const std::string model = dex::test::TinyModel{}.write(dir / "m").string();
  const Outcome outcome = run_program(DEX_BINARY_DIR "/dex_round_bench", model + " f32 1");
  CHECK(outcome.code == 0);
  // Heads, then 1 and 2 threads by 6 counts of rows.
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 2 + 2 * 6);
  CHECK(run_program(DEX_BINARY_DIR "/dex_round_bench", model + " f32 1 >/dev/full").code == 74);
}
