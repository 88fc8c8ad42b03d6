#include "data/conversation.h"

#include <algorithm>
#include <utility>

namespace dex {
namespace {

constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
    {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
    {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
    {"bard", "assistant"},      {"system", "system"}};

constexpr std::string_view kShareNotices[] = {"*This conversation is shared from",
                                              "*This chat conversation is shared from"};

bool is_share_notice(const Message& message) {
  return message.role == "system" &&
         std::any_of(std::begin(kShareNotices), std::end(kShareNotices),
                     [&](auto notice) { return message.content.starts_with(notice); });
}

// True when anything was erased.
bool erase(std::vector<Message>& messages, std::size_t first, std::size_t last) {
  messages.erase(messages.begin() + std::ptrdiff_t(first), messages.begin() + std::ptrdiff_t(last));
  return first != last;
}

// False when another system text stands there already.
bool put_system(std::vector<Message>& messages, const std::string& system) {
  if (is_blank(system)) return true;
  const bool has_one = !messages.empty() && messages.front().role == "system";
  if (!has_one) messages.insert(messages.begin(), {"system", system});
  return messages.front().content == system;
}

bool has_system_before_user(const std::vector<Message>& messages, std::size_t first) {
  const auto user = std::find_if(messages.begin(), messages.end(),
                                 [](const Message& message) { return message.role == "user"; });
  return std::any_of(messages.begin() + std::ptrdiff_t(first), user,
                     [](const Message& message) { return message.role == "system"; });
}

bool drop_leading_turns(std::vector<Message>& messages, std::size_t first) {
  std::size_t user = first;
  while (user < messages.size() && messages[user].role != "user") ++user;
  return erase(messages, first, user);
}

bool alternates(const std::vector<Message>& messages, std::size_t first) {
  for (std::size_t i = first; i < messages.size(); ++i)
    if (messages[i].role != ((i - first) % 2 ? "assistant" : "user")) return false;
  return true;
}

bool drop_blank_answers(std::vector<Message>& messages, std::size_t first) {
  bool dropped = false;
  for (std::size_t i = first; i + 1 < messages.size();) {
    if (is_blank(messages[i + 1].content))
      dropped = erase(messages, i, i + 2);
    else
      i += 2;
  }
  return dropped;
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

const char* name_of(Skip reason) {
  constexpr const char* names[] = {
      "none",       "not_json",         "malformed",    "other_content",    "odd_mark",
      "no_turns",   "unknown_role",     "other_system", "role_order",       "no_answer",
      "all_masked", "hidden_reasoning", "no_target",    "template_refused", "unproven_targets",
      "past_rows",  "duplicate",        "unanswered",   "nothing_to_ask"};
  static_assert(std::size(names) == std::size_t(Skip::count));
  return names[std::size_t(reason)];
}

Skip skip_of(const ConversationRefused& refused) {
  return refused.reason() == ConversationRefused::Reason::unproven ? Skip::unproven_targets
                                                                   : Skip::template_refused;
}

const char* name_of(Repair repair) {
  constexpr const char* names[] = {"share_notice", "leading_turns", "open_question", "blank_answer",
                                   "cut_answer"};
  return names[std::size_t(repair)];
}

std::string_view canonical_role(std::string_view role) {
  std::string lower(role);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  for (const auto& [alias, name] : kRoles)
    if (lower == alias) return name;
  return "";
}

std::string_view base_id(std::string_view id) {
  const auto underscore = id.rfind('_');
  if (underscore == std::string_view::npos || underscore == 0 || underscore + 1 == id.size())
    return id;
  const bool number = id.find_first_not_of("0123456789", underscore + 1) == std::string_view::npos;
  return number ? id.substr(0, underscore) : id;
}

Usable usable_messages(const Conversation& conversation) {
  const auto skipped = [](Skip reason) { return Usable{reason, {}, {}}; };
  if (conversation.skip != Skip::none) return skipped(conversation.skip);
  if (conversation.turns.empty()) return skipped(Skip::no_turns);
  Usable usable;
  auto& messages = usable.messages;
  for (const Turn& turn : conversation.turns) {
    messages.push_back(
        {std::string(canonical_role(turn.role)), turn.text, turn.reasoning, turn.target});
    if (messages.back().role.empty()) return skipped(Skip::unknown_role);
  }
  const auto note = [&](Repair repair, bool done) { usable.repaired[std::size_t(repair)] = done; };
  note(Repair::share_notice, erase(messages, 0, is_share_notice(messages.front()) ? 1 : 0));
  if (!put_system(messages, conversation.system)) return skipped(Skip::other_system);
  const std::size_t first = !messages.empty() && messages.front().role == "system" ? 1 : 0;
  if (has_system_before_user(messages, first)) return skipped(Skip::other_system);
  note(Repair::leading_turns, drop_leading_turns(messages, first));
  if (!alternates(messages, first)) return skipped(Skip::role_order);
  const bool open = messages.size() > first && messages.back().role == "user";
  note(Repair::open_question, erase(messages, messages.size() - (open ? 1 : 0), messages.size()));
  note(Repair::blank_answer, drop_blank_answers(messages, first));
  if (messages.size() < first + 2) return skipped(Skip::no_answer);
  const bool any_target = std::any_of(messages.begin(), messages.end(), [](const Message& message) {
    return message.role == "assistant" && message.target;
  });
  if (!any_target) return skipped(Skip::all_masked);
  return usable;
}

}  // namespace dex
