// Conversations, a JSON object a line, to ids and targets: what tests/golden/compare_templates.py
// runs.
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace {

using nlohmann::json;

std::vector<dex::Message> messages_of(const json& list) {
  std::vector<dex::Message> messages;
  for (const json& one : list)
    messages.push_back({one.at("role"), one.at("content"), one.value("reasoning_content", ""),
                        one.value("target", true)});
  return messages;
}

json answer(const dex::ChatTemplate& chat, const dex::Tokenizer& tokenizer, const json& line) {
  try {
    const auto messages = messages_of(line.at("messages"));
    const auto rendered = line.value("unfinished", false)
                              ? chat.render_unfinished(messages, tokenizer)
                              : chat.render(messages, tokenizer, line.value("open", false));
    return {{"ids", rendered.tokens}, {"supervised", rendered.supervised}};
  } catch (const dex::ConversationRefused& error) {
    return {{"refused", int(error.reason())}, {"message", error.what()}};
  } catch (const dex::Error& error) {
    return {{"error", int(error.code())}, {"message", error.what()}};
  }
}

}  // namespace

// render_lines MODEL [TEMPLATE [PYTHON [KWARGS]]]: the template's name first, then an answer a line
int main(int count, char** arguments) {
  const auto argument = [&](int i) { return i < count ? std::string(arguments[i]) : ""; };
  try {
    const auto tokenizer = dex::load_tokenizer(argument(1));
    const auto chat = dex::ChatTemplate::chosen(argument(2), argument(1),
                                                {.python = argument(3), .kwargs = argument(4)});
    std::cout << json{{"template", chat.name()}, {"digest", chat.digest()}}.dump() << "\n";
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(chat, *tokenizer, json::parse(line)).dump() << std::endl;
  } catch (const dex::Error& error) {
    std::cerr << error.what() << "\n";
    return int(error.code());
  }
}
