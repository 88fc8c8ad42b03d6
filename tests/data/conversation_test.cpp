#include "data/conversation.h"

#include <catch2/catch.hpp>
#include <map>

#include "data/parse_record.h"
#include "tests/support/shared.h"

using namespace dex;

namespace {

// "h:text" per turn: h human, g gpt, s system, t tool.
Conversation chat(std::initializer_list<const char*> turns) {
  Conversation conversation{"id", {}};
  for (const std::string turn : turns) {
    const char kind = turn[0];
    conversation.turns.push_back({kind == 'h'   ? "human"
                                  : kind == 'g' ? "gpt"
                                  : kind == 's' ? "system"
                                                : "tool",
                                  turn.substr(2)});
  }
  return conversation;
}

std::string text_of(const Usable& usable) {
  std::string text;
  for (const Message& message : usable.messages)
    text += message.role.substr(0, 1) + ":" + message.content + " ";
  return text;
}

std::string policy(std::initializer_list<const char*> turns) {
  const Usable usable = usable_messages(chat(turns));
  return usable.skip == Skip::none ? text_of(usable) : name_of(usable.skip);
}

bool repaired(std::initializer_list<const char*> turns, Repair repair) {
  return usable_messages(chat(turns)).repaired[std::size_t(repair)];
}

const char* const kNotice =
    "s:*This conversation is shared from [**ChatHub**](https://chathub.gg)*";

}  // namespace

TEST_CASE("role names of every source mean one of three roles") {
  for (const char* role : {"human", "user", "Human", "USER"}) CHECK(canonical_role(role) == "user");
  for (const char* role : {"gpt", "assistant", "chatgpt", "bing", "bard", "GPT"})
    CHECK(canonical_role(role) == "assistant");
  CHECK(canonical_role("System") == "system");
  for (const char* role : {"tool", "", "gpt4", "humans"}) CHECK(canonical_role(role).empty());
}

TEST_CASE("plain conversations pass unchanged") {
  CHECK(policy({"h:q", "g:a"}) == "u:q a:a ");
  CHECK(policy({"h:q", "g:a", "h:r", "g:b"}) == "u:q a:a u:r a:b ");
  CHECK(policy({"s:Be short.", "h:q", "g:a"}) == "s:Be short. u:q a:a ");
  CHECK(policy({"h:", "g:answer to nothing"}) == "u: a:answer to nothing ");
}

TEST_CASE("every odd shape has one treatment") {
  CHECK(policy({"g:rest", "h:q", "g:a"}) == "u:q a:a ");
  CHECK(policy({"g:rest", "g:more", "h:q", "g:a"}) == "u:q a:a ");
  CHECK(policy({kNotice, "h:q", "g:a"}) == "u:q a:a ");
  CHECK(policy({kNotice, "g:rest", "h:q", "g:a"}) == "u:q a:a ");
  CHECK(policy({"s:Be short.", "g:rest", "h:q", "g:a"}) == "s:Be short. u:q a:a ");
  CHECK(policy({"h:q", "g:a", "h:open"}) == "u:q a:a ");
  CHECK(policy({"h:q", "g:a", "h:r", "g: \n"}) == "u:q a:a ");
  CHECK(policy({"h:q", "g:", "h:r", "g:b"}) == "u:r a:b ");
  CHECK(policy({}) == "no_turns");
  CHECK(policy({"h:q", "t:{}", "g:a"}) == "unknown_role");
  CHECK(policy({"h:q", "h:r", "g:a"}) == "role_order");
  CHECK(policy({"h:q", "g:a", "g:b"}) == "role_order");
  CHECK(policy({"h:q", "s:Now be long.", "g:a"}) == "role_order");
  CHECK(policy({"h:q"}) == "no_answer");
  CHECK(policy({"g:a"}) == "no_answer");
  CHECK(policy({kNotice}) == "no_answer");
  CHECK(policy({"s:Nothing follows."}) == "no_answer");
  CHECK(policy({"h:q", "g:"}) == "no_answer");
  Conversation unread{"", {}};
  unread.skip = Skip::malformed;
  CHECK(usable_messages(unread).skip == Skip::malformed);
}

TEST_CASE("repairs are noted by kind") {
  CHECK(repaired({kNotice, "h:q", "g:a"}, Repair::share_notice));
  CHECK_FALSE(repaired({kNotice, "h:q", "g:a"}, Repair::leading_turns));
  CHECK(repaired({"g:x", "h:q", "g:a"}, Repair::leading_turns));
  CHECK(repaired({"h:q", "g:a", "h:r"}, Repair::open_question));
  CHECK(repaired({"h:q", "g:a", "h:r", "g:"}, Repair::blank_answer));
  for (int i = 0; i < int(Repair::count); ++i) CHECK_FALSE(repaired({"h:q", "g:a"}, Repair(i)));
}

TEST_CASE("parts of a chat share its base id") {
  CHECK(base_id("abc_0") == "abc");
  CHECK(base_id("abc_593") == "abc");
  CHECK(base_id("a_b_12") == "a_b");
  CHECK(base_id("abc") == "abc");
  CHECK(base_id("abc_") == "abc_");
  CHECK(base_id("abc_x1") == "abc_x1");
  CHECK(base_id("_7") == "_7");
  CHECK(base_id("") == "");
}

TEST_CASE("the shared role cases: every record is kept or skipped for a known reason") {
  const auto path = test::shared("cases/d-s2-roles.json");
  if (!path) return;
  SharegptReader reader(*path);
  std::map<std::string, std::string> outcome;
  int records = 0;
  while (auto record = reader.next()) {
    const Conversation conversation = parse_record(*record);
    outcome[conversation.id] = name_of(usable_messages(conversation).skip);
    ++records;
  }
  CHECK(records == 16);
  for (const char* id : {"a", "b", "c", "d", "e", "f", "j", "l", "m", "n", ""})
    CHECK(outcome[id] == "none");
  CHECK(outcome["g"] == "unknown_role");
  CHECK(outcome["h"] == "no_turns");
  CHECK(outcome["i"] == "no_answer");
  CHECK(outcome["k"] == "no_answer");
}
