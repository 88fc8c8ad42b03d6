// The options that commands over a model share.
#pragma once
#include "decode/session.h"

namespace CLI {
class App;
}

namespace dex {

// --model --adapters --depths --dtype --threads, and those of templates
void add_session_options(CLI::App& command, SessionOptions& options);

}  // namespace dex
