#include "launch/program/session_options.h"

#include <CLI/CLI.hpp>

#include "launch/program/template_options.h"

namespace dex {

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
