// The options that commands over a model share.
#pragma once
#include "decode/session.h"

namespace CLI {
class App;
}

namespace dex {

// --model --adapters --depths --template --dtype --threads
void add_session_options(CLI::App& command, SessionOptions& options);

}  // namespace dex
