#include "launch/program/template_options.h"

#include <CLI/CLI.hpp>

namespace dex {

void add_template_options(CLI::App& command, std::string& choice, TemplateOptions& options) {
  command.add_option("--template", choice,
                     "Chat template: a built-in's name or a file of Jinja's; default: the model's");
  command.add_option(
      "--python", options.python,
      "Python with jinja2, for templates that are not built in; default: DEX_PYTHON, "
      ".venv/bin/python, python3");
  command.add_option("--chat-template-kwargs", options.kwargs,
                     "JSON object that the template sees beside the messages");
}

}  // namespace dex
