#include "launch/program/session_options.h"

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

void add_session_options(CLI::App& command, SessionOptions& o) {
  command.add_option("--model", o.model, "Model directory in HF layout")->required();
  command.add_option("--adapters", o.adapters,
                     "Adapter directory; its depths are explored unless --depths says otherwise");
  command.add_option("--depths", o.depths,
                     "Explored depths, such as 10,20 (the full depth is always explored)");
  add_template_options(command, o.chat_template, o.rendering);
  command
      .add_option("--dtype", o.dtype,
                  "Type of weights and KV cache: f32, bf16, or int8 (weights of int8 made from the "
                  "model's, cache of bf16)")
      ->capture_default_str();
  command.add_option("--threads", o.threads, "Threads in all (0: one per core)")
      ->capture_default_str();
}

}  // namespace dex
