// The options that commands over a model share.
#pragma once
#include <string>

#include "decode/session.h"

namespace CLI {
class App;
}

namespace dex {

// --template --python --chat-template-kwargs
void add_template_options(CLI::App& command, std::string& choice, TemplateOptions& options);

// --model --adapters --depths --dtype --threads, and those of templates
void add_session_options(CLI::App& command, SessionOptions& options);

}  // namespace dex
