// dex: finds the command that was asked for, runs it, and turns what it throws into one line and an exit code.
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "common/command_line.h"
#include "common/error.h"
#include "common/log.h"
#include "data/prepare_command.h"
#include "decode/bench_command.h"
#include "decode/decode_command.h"
#include "decode/ead_command.h"
#include "launch/inspect_command.h"
#include "train/stop_signal.h"
#include "train/train_command.h"

namespace {

using dex::ExitCode;

int complain(ExitCode code, const std::string& message) {
  // Messages of libtorch carry a stack trace behind their first line.
  std::cerr << "dex: error: " << message.substr(0, message.find('\n')) << "\n";
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App program("Depth exploration for LLM decoding: several depths of one model propose tokens, the last one decides.", "dex");
  program.set_help_flag("--help", "Show options and leave");
  program.set_version_flag("--version", "dex " DEX_VERSION);
  bool quiet = false;
  program.add_flag("--quiet", quiet, "Log warnings and errors only");
  dex::add_config_option(program);
  program.fallthrough();  // --quiet and --config may stand behind the command, too
  program.require_subcommand(1);

  std::function<int()> chosen;
  dex::add_prepare_command(program, chosen);
  dex::add_train_command(program, chosen);
  dex::add_ead_command(program, chosen);
  dex::add_decode_command(program, chosen);
  dex::add_bench_command(program, chosen);
  dex::add_inspect_command(program, chosen);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return complain(ExitCode::usage, error.what());
  }
  dex::start_log(quiet);
  if (!program.got_subcommand("train")) dex::StopSignal::release();
  const int code = chosen();
  if (!std::cout.flush() || std::fflush(stdout) != 0) return complain(ExitCode::io, "the result cannot be written to stdout");
  return code;
}

// libtorch's constructors take a fifth of a second before main. A signal that asks a run to save and leave waits for them.
void hold_signals(int, char**, char**) { dex::StopSignal::hold(); }
__attribute__((section(".preinit_array"), used)) void (*const before_constructors)(int, char**, char**) = hold_signals;

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the size limit is an error of the write, with its path
  try {
    return run(argc, argv);
  } catch (const dex::Error& error) {
    return complain(error.code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(ExitCode::io, error.what());
  } catch (const nlohmann::json::exception& error) {
    return complain(ExitCode::io, std::string("a JSON file holds another type than wanted: ") + error.what());
  } catch (const std::system_error& error) {
    return complain(ExitCode::temporary, std::string("the system refuses: ") + error.what());
  } catch (const std::exception& error) {
    return complain(ExitCode::bug, error.what());
  }
}
