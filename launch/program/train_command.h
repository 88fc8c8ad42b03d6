#pragma once
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace dex {
void add_train_command(CLI::App& program, std::function<int()>& chosen);  // dex train

// For a dex train whose command line is wrong: ends the other ranks, if there are any, which would
// wait for this one.
void refuse_to_join(const std::string& reason) noexcept;
}  // namespace dex
