// The program as a user runs it.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace dex::test {

struct Outcome {
  int code;
  std::string out, err;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A shell command line; redirections in `arguments` override those that catch its output.
inline Outcome run_program(const std::string& program, const std::string& arguments) {
  const TempDir dir;
  const std::string command =
      program + " >" + (dir / "out").string() + " 2>" + (dir / "err").string() + " " + arguments;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(dir / "out"),
          contents(dir / "err")};
}

inline Outcome dex_program(const std::string& arguments) {
  return run_program(DEX_BINARY_DIR "/dex", arguments);
}

}  // namespace dex::test
