#include "data/message_fields.h"

#include <nlohmann/json.hpp>

#include "data/conversation.h"

namespace dex {
namespace {

using nlohmann::json;

constexpr const char* kOtherContent[] = {"tool_calls",   "tool_call",
                                         "tool_call_id", "function_call",
                                         "tools",        "functions",
                                         "documents",    "images",
                                         "image",        "videos",
                                         "video",        "audios",
                                         "audio",        "files",
                                         "attachments",  "refusal",
                                         "prefix",       "chosen",
                                         "rejected",     "train_detail",
                                         "observation",  "chat_template_kwargs"};
constexpr const char* kReasoning[] = {"reasoning_content", "reasoning", "thinking"};

bool says_something(const json& value) {
  if (value.is_null() || value == false) return false;
  if (value.is_string()) return !is_blank(value.get_ref<const std::string&>()) && value != "[]";
  return !value.empty();
}

}  // namespace

const char* other_content_field(const json& object) {
  for (const char* name : kOtherContent)
    if (const auto found = object.find(name); found != object.end() && says_something(*found))
      return name;
  return nullptr;
}

std::optional<std::string> text_of(const json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.empty()) return std::nullopt;
  std::string text;
  for (const json& part : content) {
    const bool is_text = part.is_object() && part.size() == 2 &&
                         part.value("type", json()) == "text" &&
                         part.value("text", json()).is_string();
    if (!is_text) return std::nullopt;
    text += part.at("text").get_ref<const std::string&>();
  }
  return text;
}

std::optional<std::string> reasoning_of(const json& message) {
  std::string reasoning;
  for (const char* name : kReasoning) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    if (!found->is_string()) return std::nullopt;
    const auto& text = found->get_ref<const std::string&>();
    if (is_blank(text)) continue;
    if (!reasoning.empty() && text != reasoning) return std::nullopt;
    reasoning = text;
  }
  return reasoning;
}

}  // namespace dex
