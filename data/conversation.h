// From a record as found to messages that every chat template renders: role names, and one written
// policy for odd turns.
//
// In this order, under every template:
//   1. a record of another form than a list of texts with roles, without turns, or with an unknown
//     role is
//   skipped;
//   2. a leading system turn that only says where the chat was shared is dropped, another leading
//     system turn
//   is kept;
//   3. further leading turns that are not the user's are dropped (parts of a long chat start with
//     an answer);
//   4. what remains must alternate user, assistant (FastChat's loader), or the record is skipped;
//   5. a last user turn without answer is dropped, and so is every pair whose answer is blank;
//   6. a record without an answer left is skipped.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_template.h"

namespace dex {

struct Turn {
  std::string role, text;  // the role as found
};

struct Conversation {
  std::string id;  // "" when the record has none
  std::vector<Turn> turns;
  bool malformed = false;
};

enum class Skip : std::uint8_t {
  none,
  malformed,
  no_turns,
  unknown_role,
  role_order,
  no_answer,
  no_target,         // no answer token within the length limit
  template_refused,  // the chat template raised an error
  unproven_targets,  // which tokens are answers could not be shown
  past_rows,  // a token id that the model's embedding has no row for
  duplicate,  // the same tokens as an earlier sample, or the same question as an earlier record
  // Where a model answers the questions again:
  unanswered,      // it has given no answer to the first one
  nothing_to_ask,  // every question that may be asked has its answer
  count
};
const char* name_of(Skip reason);  // "no_turns"
Skip skip_of(const ConversationRefused& refused);

enum class Repair : std::uint8_t {
  share_notice,
  leading_turns,
  open_question,
  blank_answer,
  cut_answer,
  count
};
const char* name_of(Repair repair);

bool is_blank(std::string_view text);

struct Usable {
  Skip skip = Skip::none;
  std::vector<Message> messages;  // empty when skipped
  std::array<bool, std::size_t(Repair::count)> repaired{};
};

Usable usable_messages(const Conversation& conversation);

// "user", "assistant", "system", or "" for an unknown name. Case does not matter.
std::string_view canonical_role(std::string_view role);

// The id of the whole chat that a part belongs to: "abc_7" -> "abc".
std::string_view base_id(std::string_view id);

}  // namespace dex
