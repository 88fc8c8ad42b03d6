#include "decode/jobs/job_messages.h"

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "decode/jobs/job_fields.h"

namespace dex {
namespace {

using Json = nlohmann::json;

// Parts are laid end to end: nothing is between them that was not written.
std::string joined(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    require(part.is_object() && part.size() == 2 && part.value("type", Json()) == "text" &&
                part.value("text", Json()).is_string(),
            ExitCode::usage,
            "\"content\" has the part {}, wanted {{\"type\": \"text\", \"text\": ...}}",
            shown(part));
    text += part.at("text").get<std::string>();
  }
  return text;
}

std::string content_of(const Json& message) {
  const Json content = message.value("content", Json());
  if (content.is_string()) return content.get<std::string>();
  require(content.is_array() && !content.empty(), ExitCode::usage,
          "\"content\" is {}, wanted a text or a list of text parts", shown(content));
  return joined(content);
}

std::string role_of(const Json& message) {
  const Json role = message.value("role", Json());
  require(role == "system" || role == "user" || role == "assistant", ExitCode::usage,
          "\"role\" is {}, wanted system, user or assistant", shown(role));
  return role.get<std::string>();
}

// Two names of one thing.
std::string reasoning_of(const Json& message, const std::string& role) {
  std::string reasoning;
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const Json value = message.value(name, Json());
    if (value.is_null() || value == "") continue;
    require(value.is_string() && role == "assistant", ExitCode::usage,
            "\"{}\" of a message by {} is {}, wanted a text, and by the assistant only", name, role,
            shown(value));
    require(reasoning.empty() || value == reasoning, ExitCode::usage,
            "\"reasoning_content\" and \"reasoning\" differ, wanted one of them");
    reasoning = value.get<std::string>();
  }
  return reasoning;
}

// As an answer of the API has them where they are empty.
bool says_nothing(const std::string& name, const Json& value) {
  if (value.is_null()) return true;
  if (name == "refusal") return value == "";
  return (name == "tool_calls" || name == "annotations") && value == Json::array();
}

Message message_of(const Json& message) {
  require(message.is_object(), ExitCode::usage, "it is {}, wanted an object", shown(message));
  for (const auto& [name, value] : message.items())
    require(name == "role" || name == "content" || name == "reasoning_content" ||
                name == "reasoning" || says_nothing(name, value),
            ExitCode::usage, "\"{}\" is {}: a field that is not known, and might change the text",
            name, shown(value));
  const std::string role = role_of(message);
  return {role, content_of(message), reasoning_of(message, role)};
}

}  // namespace

std::vector<Message> messages_of(const Json& list) {
  require(list.is_array() && !list.empty(), ExitCode::usage,
          "\"messages\" is {}, wanted a list of messages",
          list.is_array() ? "empty" : list.type_name());
  std::vector<Message> messages;
  for (const Json& message : list) try {
      messages.push_back(message_of(message));
    } catch (const Error& error) {
      fail(ExitCode::usage, "message {}: {}", messages.size() + 1, error.what());
    }
  return messages;
}

}  // namespace dex
