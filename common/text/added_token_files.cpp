#include "common/text/added_token_files.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/base/error.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

using nlohmann::json;

json read_if_there(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_json_object(path) : json::object();
}

// A token is a text, or an object with the text under "content".
std::string text_of(const json& value) {
  const json& text = value.is_object() && value.contains("content") ? value["content"] : value;
  return text.is_string() ? text.get<std::string>() : "";
}

void add_roles(const json& file, std::set<std::string, std::less<>>& roles) {
  for (const char* name : kRoleNames)
    if (file.contains(name)) roles.insert(text_of(file[name]));
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"})
    if (file.contains(name) && file[name].is_array())
      for (const json& token : file[name]) roles.insert(text_of(token));
  roles.erase("");
}

class Reader {
 public:
  explicit Reader(AddedTokenFiles& result) : result_(result) {}

  void read_decoder(const json& decoder, const std::string& place) {
    require(decoder.is_null() || decoder.is_object(), ExitCode::usage,
            "{}: added_tokens_decoder is {}; wanted an object", place, decoder.type_name());
    for (const auto& [key, value] : decoder.items()) {
      std::int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      const std::string what = place + ": added_tokens_decoder";
      const std::string text = text_of(value);
      require(error == std::errc() && end == key.data() + key.size() && value.is_object() &&
                  !text.empty(),
              ExitCode::usage,
              "{} has the id {} with {}; wanted an id and an object with a content", what, key,
              value.dump());
      const auto flag = [&](const char* name) {
        return value.contains(name) && value[name] == json(true);
      };
      add({.text = text,
           .id = checked_token_id(id, fmt::format("{} has \"{}\" with", what, text)),
           .special = flag("special") || result_.roles.contains(text),
           .normalized = flag("normalized"),
           .single_word = flag("single_word"),
           .lstrip = flag("lstrip"),
           .rstrip = flag("rstrip")},
          place);
    }
  }

  void read_ids(const json& file, const std::string& place) {
    for (const auto& [text, value] : file.items()) {
      require(!text.empty() && value.is_number_integer(), ExitCode::usage,
              "{}: \"{}\" has the id {}; wanted a text with a number", place, text, value.dump());
      const bool special = result_.roles.contains(text);
      add({.text = text,
           .id = checked_token_id(value.get<std::int64_t>(),
                                  fmt::format("{}: \"{}\" has", place, text)),
           .special = special,
           .normalized = !special},
          place);
    }
  }

 private:
  void add(AddedToken token, const std::string& place) {
    const auto [same_id, new_id] = by_id_.emplace(token.id, result_.tokens.size());
    const auto [same_text, new_text] = by_text_.emplace(token.text, result_.tokens.size());
    if (new_id && new_text) return result_.tokens.push_back(std::move(token));
    const AddedToken& known = result_.tokens[std::min(same_id->second, same_text->second)];
    if (new_id) by_id_.erase(same_id);
    if (new_text) by_text_.erase(same_text);
    if (known.id == token.id && known.text == token.text) return;
    spdlog::warn(
        "{}: says that {} is \"{}\"; tokenizer_config.json, which holds, says that {} is \"{}\"",
        place, token.id, token.text, known.id, known.text);
  }

  AddedTokenFiles& result_;
  std::unordered_map<Token, std::size_t> by_id_;  // places in result_.tokens
  std::unordered_map<std::string, std::size_t> by_text_;
};

}  // namespace

Token checked_token_id(std::int64_t id, const std::string& what) {
  constexpr std::int64_t kMost = 1 << 24;  // the largest published vocabularies have 2^18 ids
  require(id >= 0 && id < kMost, ExitCode::usage, "{} the id {}; wanted a number from 0 to {}",
          what, id, kMost - 1);
  return Token(id);
}

AddedTokenFiles read_added_token_files(const std::filesystem::path& model_dir) {
  const auto config_path = model_dir / "tokenizer_config.json",
             ids_path = model_dir / "added_tokens.json";
  const json config = read_if_there(config_path);
  AddedTokenFiles result;
  result.begins_texts = config.value("add_bos_token", json()) != json(false);
  add_roles(config, result.roles);
  add_roles(read_if_there(model_dir / "special_tokens_map.json"), result.roles);
  Reader reader(result);
  reader.read_decoder(config.value("added_tokens_decoder", json()), config_path.string());
  reader.read_ids(read_if_there(ids_path), ids_path.string());
  return result;
}

}  // namespace dex
