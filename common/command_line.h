// The echo of a command's options, from the one table that parses them.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace dex {
std::string command_line_of(const CLI::App& command);  // "--model m --dtype f32 ...": given or default, every option
}
