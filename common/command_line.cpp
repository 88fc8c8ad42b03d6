#include "common/command_line.h"

#include <CLI/CLI.hpp>

namespace dex {

std::string command_line_of(const CLI::App& command) {
  std::string line;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    std::string value = option->get_default_str();
    if (option->count() > 0) value = CLI::detail::join(option->results(), ",");
    if (value.empty()) continue;
    if (!line.empty()) line += ' ';
    line += "--" + option->get_lnames().front();
    if (option->get_expected_max() > 0) line += ' ' + value;
  }
  return line;
}

}  // namespace dex
