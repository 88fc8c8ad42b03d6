// From a record as found to messages that every chat template renders: role names, and one written
// policy for odd turns. What a record says is used as meant, or the record is skipped for a reason
// of its own; no part of a record that is kept is dropped but by the repairs named here.
//
// In this order, under every template:
//   1. A record that was refused when it was read (see parse_record.h), that has no turns or an
//      unknown role is skipped.
//   2. A leading system turn that only says where the chat was shared is dropped; another leading
//      system turn is kept. A system text beside the turns becomes the leading system turn. Where
//      there is one already, both must say the same, or the record is skipped.
//   3. Further leading turns that are not the user's are dropped: parts of a long chat start with
//      an answer. A system turn among them is another one, and the record is skipped.
//   4. What remains must alternate user, assistant (FastChat's loader), or the record is skipped.
//   5. A last user turn without an answer is dropped, and so is every pair whose answer is blank.
//   6. A record without an answer left is skipped, and so is one whose answers are all marked as
//      none to train on.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_template.h"

namespace dex {

enum class Skip : std::uint8_t {
  none,
  not_json,       // or holds a number, an escape or a byte that nobody can read
  malformed,      // JSON of another form than a list of texts with roles
  other_content,  // tool calls, images and whatever else messages have no place for
  odd_mark,       // whether a turn is to be trained on is said in another way than by 0 or 1
  no_turns,
  unknown_role,
  other_system,  // several system texts that differ
  role_order,
  no_answer,
  all_masked,        // every answer is marked as none to train on
  hidden_reasoning,  // the chat template has no place for an answer's reasoning
  no_target,         // no target within the length limit
  template_refused,  // the chat template raised an error
  unproven_targets,  // which tokens are answers could not be shown
  past_rows,         // a token id that the model's embedding has no row for
  duplicate,         // the tokens of an earlier sample, or the question of an earlier record
  // Where a model answers the questions again:
  unanswered,      // it has given no answer to the first one
  nothing_to_ask,  // every question that may be asked has its answer
  count
};
const char* name_of(Skip reason);  // "no_turns"
Skip skip_of(const ConversationRefused& refused);

struct Turn {
  std::string role, text;      // the role as found
  std::string reasoning = {};  // an answer's
  bool target = true;          // false: marked as context only
};

struct Conversation {
  std::string id;  // "" when the record has none
  std::vector<Turn> turns;
  std::string system = {};   // that stands beside the turns; blank: none
  Skip skip = Skip::none;    // why the record cannot be read
  std::string problem = {};  // what is wrong then, and where
};

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
