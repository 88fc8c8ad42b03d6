// What every command's options share: their echo, and their values from a file, from the one table
// that parses them.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace dex {

std::string command_line_of(
    const CLI::App& command);  // "--model m --dtype f32 ...": given or default, every option

// --config FILE before or behind the command: lines `option = value` of that command, without its
// dashes; a flag is true or false; # begins a comment line. The command line goes before the file.
// Parsing throws Error(usage) naming file and line for a line of another form, an option that the
// command does not have, or one that stands twice.
void add_config_option(CLI::App& program);

// Whole numbers that do not fit their option are refused: CLI11 would take the nearest that does.
// When all commands are there.
void check_whole_numbers(CLI::App& program);

}  // namespace dex
