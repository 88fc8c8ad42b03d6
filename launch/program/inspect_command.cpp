#include "launch/program/inspect_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "common/base/error.h"
#include "common/base/log.h"
#include "launch/inspect/inspection.h"
#include "launch/inspect/rewrite.h"

namespace dex {
namespace {

struct InspectOptions {
  std::filesystem::path path, model;
  bool json = false, rewrite = false;
};

int run(const InspectOptions& options) {
  require(options.rewrite == !options.model.empty(), ExitCode::usage,
          "--rewrite and --model go together: adapters, and the model they belong to");
  Inspection found =
      options.rewrite ? rewrite_adapters(options.path, options.model) : inspect(options.path);
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
  command.add_flag("--rewrite", options->rewrite,
                   "Give adapters of an older form, or those of a run, the form of today");
  command.add_option("--model", options->model, "The model that they belong to");
  command.callback([options, &chosen] {
    chosen = [options] {
      spdlog::info("inspect {}{}{}", options->path.string(), options->json ? " --json" : "",
                   options->rewrite ? " --rewrite --model " + options->model.string() : "");
      return run(*options);
    };
  });
}

}  // namespace dex
