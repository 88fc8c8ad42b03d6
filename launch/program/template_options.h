// The options that say which chat template renders, and with what.
#pragma once
#include <string>

#include "common/text/chat_template.h"

namespace CLI {
class App;
}

namespace dex {

// --template --python --chat-template-kwargs
void add_template_options(CLI::App& command, std::string& choice, TemplateOptions& options);

}  // namespace dex
