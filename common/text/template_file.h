// The chat template of a model directory, and the special tokens that it sees: what transformers
// would give it.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace dex {

struct TemplateFile {
  std::filesystem::path path;  // where the text is
  std::string text;            // line ends are LF
};

// chat_template.jinja, else the "chat_template" of tokenizer_config.json: a text, or the one named
// "default" of a list. None where neither is there. Error(usage) for a list without a default.
std::optional<TemplateFile> find_template(const std::filesystem::path& model_dir);

TemplateFile read_template(const std::filesystem::path& path);  // of Jinja's

struct TemplateTokens {
  std::map<std::string, std::string> values;  // "bos_token": "<s>", ...
  // Names that no file of the model speaks of and whose default depends on a tokenizer class that
  // is not known here.
  bool knows(const std::string& name) const;
  std::map<std::string, bool> said;  // also those that are null
};
TemplateTokens read_template_tokens(const std::filesystem::path& model_dir);

}  // namespace dex
