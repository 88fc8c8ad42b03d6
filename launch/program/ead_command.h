#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {
void add_ead_command(CLI::App& program, std::function<int()>& chosen);  // dex ead
}
