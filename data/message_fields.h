// Fields of a message, in records and in rows of answers alike.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace dex {

// The name of a field that says more than text and messages have no place for (tool calls, images,
// ...), unless it is null, false or empty; nullptr when there is none.
const char* other_content_field(const nlohmann::json& object);

// The text, or all text parts end to end; nothing when it is neither.
std::optional<std::string> text_of(const nlohmann::json& content);

// What is told apart from the content as the thoughts before it; "" when there are none or they are
// blank, nothing when they are no text or stand there twice and differ.
std::optional<std::string> reasoning_of(const nlohmann::json& message);

}  // namespace dex
