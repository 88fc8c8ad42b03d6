#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {
void add_decode_command(CLI::App& program, std::function<int()>& chosen);  // dex decode
}
