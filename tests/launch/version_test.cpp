#include "common/base/version.h"

#include <catch2/catch.hpp>
#include <regex>

#include "kernels/instruction_sets.h"
#include "kernels/numbers_version.h"
#include "tests/support/program.h"

TEST_CASE("dex --version tells version, commit, libraries, numbers and instruction sets") {
  const auto told = dex::test::dex_program("--version");
  CHECK(told.code == 0);
  CHECK(told.err.empty());
  CAPTURE(told.out);
  const std::regex form(
      "dex [0-9]+\\.[0-9]+\\.[0-9]+\n"
      "commit        ([0-9a-f]{12,40}( and changes)?|unknown)\n"
      "libraries     libtorch [0-9]+\\.[0-9.]+[^,]*, HDF5 [0-9.]+, SentencePiece [0-9.]+, "
      "(no CUDA|CUDA [0-9.]+)\n"
      "numbers       version [0-9]+\n"
      "instructions  [^\n]+\n");
  CHECK(std::regex_match(told.out, form));
  CHECK(told.out.starts_with("dex " + dex::version() + "\n"));
  CHECK_THAT(told.out, Catch::Contains("commit        " + dex::commit() + "\n"));
  CHECK_THAT(told.out, Catch::Contains("numbers       version " +
                                       std::to_string(dex::kNumbersVersion) + "\n"));
  CHECK_THAT(told.out, Catch::Contains("instructions  " + dex::instruction_sets() + "\n"));
}
