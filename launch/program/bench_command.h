#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {
void add_bench_command(CLI::App& program, std::function<int()>& chosen);  // dex bench
}
