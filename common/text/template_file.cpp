#include "common/text/template_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_file.h"
#include "common/text/added_token_files.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string with_line_feeds(std::string text) {
  for (std::size_t at = 0; (at = text.find('\r', at)) != std::string::npos; ++at) {
    text[at] = '\n';
    if (at + 1 < text.size() && text[at + 1] == '\n') text.erase(at + 1, 1);
  }
  return text;
}

std::string default_of(const json& list, const fs::path& path) {
  for (const json& entry : list)
    if (entry.is_object() && entry.value("name", json()) == json("default") &&
        entry.value("template", json()).is_string())
      return entry["template"].get<std::string>();
  fail(ExitCode::usage, "{}: none of its {} chat templates is named \"default\"", path.string(),
       list.size());
}

// What a tokenizer class has where its files are silent.
struct ClassDefaults {
  std::string_view prefix;
  std::map<std::string, std::string> values;
};

const std::vector<ClassDefaults>& class_defaults() {
  static const std::string end = "<|endoftext|>";
  static const std::vector<ClassDefaults> all = {
      {"LlamaTokenizer", {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}},
      {"CodeLlamaTokenizer", {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}},
      {"Qwen2Tokenizer", {{"eos_token", end}, {"pad_token", end}, {"unk_token", end}}},
      {"GPT2Tokenizer", {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}}},
      {"PreTrainedTokenizer", {}},
      {"TokenizersBackend", {}}};
  return all;
}

void take(const json& file, TemplateTokens& tokens) {
  for (const char* name : kRoleNames) {
    if (!file.contains(name)) continue;
    const json& value = file[name];
    const json text = value.is_object() ? value.value("content", json()) : value;
    tokens.said[name] = true;
    if (text.is_string())
      tokens.values[name] = text.get<std::string>();
    else
      tokens.values.erase(name);
  }
}

}  // namespace

bool TemplateTokens::knows(const std::string& name) const {
  const bool special =
      std::find(std::begin(kRoleNames), std::end(kRoleNames), name) != std::end(kRoleNames);
  return !special || said.contains(name);
}

TemplateFile read_template(const fs::path& path) {
  TemplateFile file{path, with_line_feeds(read_file(path))};
  require_utf8(file.text, path.string());
  require(!file.text.empty(), ExitCode::usage, "{}: is empty, wanted a chat template",
          path.string());
  return file;
}

std::optional<TemplateFile> find_template(const fs::path& model_dir) {
  const fs::path own = model_dir / "chat_template.jinja",
                 config_path = model_dir / "tokenizer_config.json";
  if (fs::exists(own)) return read_template(own);
  if (!fs::exists(config_path)) return std::nullopt;
  const json config = read_json_object(config_path);
  const json field = config.value("chat_template", json());
  std::string text;
  if (field.is_string()) text = field.get<std::string>();
  if (field.is_array()) text = default_of(field, config_path);
  if (text.empty()) return std::nullopt;
  return TemplateFile{config_path, with_line_feeds(text)};
}

TemplateTokens read_template_tokens(const fs::path& model_dir) {
  TemplateTokens tokens;
  const fs::path config_path = model_dir / "tokenizer_config.json",
                 map_path = model_dir / "special_tokens_map.json";
  json config = json::object();
  if (fs::exists(config_path)) config = read_json_object(config_path);
  const json named = config.value("tokenizer_class", json());
  const std::string tokenizer_class = named.is_string() ? named.get<std::string>() : "";
  for (const auto& [prefix, values] : class_defaults())
    if (tokenizer_class.starts_with(prefix)) {
      tokens.values = values;
      for (const char* name : kRoleNames) tokens.said[name] = true;
    }
  take(config, tokens);
  // a file of older versions: only where the newer list is not there
  if (!config.contains("added_tokens_decoder") && fs::exists(map_path))
    take(read_json_object(map_path), tokens);
  return tokens;
}

}  // namespace dex
