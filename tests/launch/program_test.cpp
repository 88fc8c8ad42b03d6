#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/temp_dir.h"

namespace {

struct Outcome {
  int code;
  std::string out, err;
};

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Outcome dex_program(const std::string& arguments) {
  const dex::test::TempDir dir;
  const std::string command = std::string(DEX_BINARY_DIR) + "/dex " + arguments + " >" + (dir / "out").string() + " 2>" + (dir / "err").string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(dir / "out"), read(dir / "err")};
}

}  // namespace

TEST_CASE("the program names its version on stdout") {
  const Outcome outcome = dex_program("--version");
  CHECK(outcome.code == 0);
  CHECK(outcome.out.rfind("dex ", 0) == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("help goes to stdout and succeeds") {
  const Outcome outcome = dex_program("--help");
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("--quiet") != std::string::npos);
}

TEST_CASE("a command line that cannot be understood is one line on stderr and exit code 2") {
  for (const char* arguments : {"", "nonsense", "--nonsense", "--quiet"}) {
    INFO("dex " << arguments);
    const Outcome outcome = dex_program(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.rfind("dex: error: ", 0) == 0);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
}
