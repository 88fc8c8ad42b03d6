#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace dex {
void add_train_command(CLI::App& program, std::function<int()>& chosen);  // dex train
}
