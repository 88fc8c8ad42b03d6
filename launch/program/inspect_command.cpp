#include "launch/program/inspect_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "common/base/error.h"
#include "common/base/log.h"
#include "launch/inspect/inspection.h"

namespace dex {
namespace {

struct InspectOptions {
  std::filesystem::path path;
  bool json = false;
};

int run(const InspectOptions& options) {
  Inspection found = inspect(options.path);
  found.facts["command"] = "inspect";
  if (!options.json) std::cout << found.text;
  std::cout << found.facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            << std::endl;
  return int(found.code);
}

}  // namespace

void add_inspect_command(CLI::App& program, std::function<int()>& chosen) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App& command = *program.add_subcommand(
      "inspect", "Say what a model, data set, adapter, checkpoint or measurement holds");
  command.add_option("PATH", options->path, "File or directory")->required();
  command.add_flag("--json", options->json, "Print the JSON line only");
  command.callback([options, &chosen] {
    chosen = [options] {
      spdlog::info("inspect {}{}", options->path.string(), options->json ? " --json" : "");
      return run(*options);
    };
  });
}

}  // namespace dex
