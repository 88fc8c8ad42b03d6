#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {

// `dex prepare`: a ShareGPT file to token shards.
void add_prepare_command(CLI::App& program, std::function<int()>& chosen);

}  // namespace dex
