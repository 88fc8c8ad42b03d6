// dex: finds the command that was asked for and runs it.
#include <CLI/CLI.hpp>

#include <functional>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "launch/program/about.h"
#include "launch/program/bench_command.h"
#include "launch/program/decode_command.h"
#include "launch/program/ead_command.h"
#include "launch/program/inspect_command.h"
#include "launch/program/prepare_command.h"
#include "launch/program/refused_threads.h"
#include "launch/program/train_command.h"
#include "train/loop/stop_signal.h"

namespace {

int run(int argc, char** argv) {
  CLI::App program(
      "Depth exploration for LLM decoding: several depths of one model propose tokens, the last "
      "one decides.",
      "dex");
  program.set_help_flag("--help", "Show options and leave");
  program.set_version_flag("--version", dex::about,
                           "Show version, commit, libraries and instruction sets, and leave");
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
  dex::check_whole_numbers(program);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return program.exit(help_or_version);
  } catch (const std::exception& error) {
    if (program.got_subcommand("train")) dex::refuse_to_join(error.what());
    if (dynamic_cast<const CLI::ParseError*>(&error))
      dex::fail(dex::ExitCode::usage, "{}", error.what());
    throw;
  }
  dex::start_log(quiet);
  if (!program.got_subcommand("train")) dex::StopSignal::release();
  return chosen();
}

// libtorch's constructors take a fifth of a second before main. A signal that asks a run to save
// and leave waits for them.
void hold_signals(int, char**, char**) { dex::StopSignal::hold(); }
__attribute__((section(".preinit_array"),
               used)) void (*const before_constructors)(int, char**, char**) = hold_signals;

}  // namespace

int main(int argc, char** argv) {
  const dex::RefusedThreads refused_threads;
  return dex::run_program("dex", [&] { return run(argc, argv); });
}
