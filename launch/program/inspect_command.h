#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {

// `dex inspect`: says what a path is and what stands in it.
void add_inspect_command(CLI::App& program, std::function<int()>& chosen);

}  // namespace dex
