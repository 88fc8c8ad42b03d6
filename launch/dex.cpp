#include <CLI/CLI.hpp>
#include <functional>

#include "common/error.h"
#include "common/log.h"
#include "data/prepare_command.h"

int main(int argc, char** argv) {
  dex::start_log(false);
  CLI::App program("DEX: depth exploration for LLM decoding", "dex");
  program.require_subcommand(1);
  std::function<int()> chosen;
  dex::add_prepare_command(program, chosen);
  try {
    program.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : static_cast<int>(dex::ExitCode::usage);
  } catch (const dex::Error& error) {
    spdlog::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return static_cast<int>(dex::ExitCode::bug);
  }
}
