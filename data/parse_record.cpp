#include "data/parse_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "data/message_fields.h"

namespace dex {
namespace {

using nlohmann::json;

// "loss" beside the turns is a figure that somebody measured.
constexpr const char* kRecordMarks[] = {"weight", "train", "loss_mask"};
constexpr const char* kTurnMarks[] = {"weight", "train", "loss_mask", "loss"};

const json* first_of(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto found = object.find(key); found != object.end() && !found->is_null())
      return &*found;
  return nullptr;
}

std::string id_text(const json* id) {
  if (!id) return "";
  return id->is_string() ? id->get<std::string>() : id->dump();
}

// What a tree of JSON does not tell: a key that stands twice in one object, and the id of a record
// that ends in an error after it.
class Watch {
 public:
  void see(int depth, json::parse_event_t event, const json& parsed) {
    const std::size_t level = std::size_t(depth) + (event == json::parse_event_t::object_start);
    if (event == json::parse_event_t::object_start) {
      if (keys_.size() <= level) keys_.resize(level + 1);
      keys_[level].clear();
    } else if (event == json::parse_event_t::key) {
      last_ = parsed.get<std::string>();
      if (!keys_[level].insert(last_).second) twice_ = last_;
    } else if (event == json::parse_event_t::value && level == 1 && last_ == "id" &&
               !parsed.is_null()) {
      id_ = id_text(&parsed);
    }
  }
  const std::optional<std::string>& twice() const { return twice_; }
  const std::string& id() const { return id_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string last_, id_;
  std::optional<std::string> twice_;
};

// Without the parser's own name before the words, nor much of the record after them.
std::string reason_of(const json::exception& error) {
  constexpr std::size_t kMost = 160;
  std::string words = error.what();
  words.erase(0, words.find("] ") == std::string::npos ? 0 : words.find("] ") + 2);
  return words.size() <= kMost ? words : words.substr(0, kMost) + "...";
}

// Whether the other spelling of role or text says another thing.
bool says_otherwise(const json& message, const json& role, const json& text) {
  const json& other_role = *first_of(message, {"role", "from"});
  const bool one_role = other_role == role ||
                        (other_role.is_string() && canonical_role(other_role.get<std::string>()) ==
                                                       canonical_role(role.get<std::string>()));
  return !one_role || *first_of(message, {"content", "value"}) != text;
}

class Parser {
 public:
  explicit Parser(Conversation& result) : result_(result) {}

  bool read(const json& record) {
    if (!record.is_object())
      return refuse(Skip::malformed,
                    fmt::format("is a JSON {}, wanted an object", record.type_name()));
    result_.id = id_text(first_of(record, {"id"}));
    const json* turns = first_of(record, {"conversations", "conversation", "messages", "items"});
    if (!turns || !turns->is_array())
      return refuse(Skip::malformed, "has no list of turns: conversations or messages");
    bool target = true;
    if (!read_plain(record, "", kRecordMarks, target) || !read_system(record)) return false;
    for (std::size_t i = 0; i < turns->size(); ++i) {
      result_.turns.push_back({.role = {}, .text = {}, .reasoning = {}, .target = target});
      if (!read_turn((*turns)[i], fmt::format("turn {}: ", i), result_.turns.back())) return false;
    }
    return true;
  }

  bool refuse(Skip reason, std::string problem) {
    result_.skip = reason;
    result_.problem = std::move(problem);
    result_.turns.clear();
    return false;
  }

 private:
  // That it says nothing beside text but whether it is a target.
  bool read_plain(const json& object, const std::string& place, std::span<const char* const> marks,
                  bool& target) {
    if (const char* name = other_content_field(object))
      return refuse(Skip::other_content, fmt::format("{}has the field \"{}\"", place, name));
    for (const char* name : marks) {
      const auto found = object.find(name);
      if (found == object.end() || *found == 1 || *found == true || found->is_null()) continue;
      if (*found != 0 && *found != false)
        return refuse(Skip::odd_mark,
                      fmt::format("{}\"{}\" is {}, wanted 0 or 1", place, name, shown(*found)));
      target = false;
    }
    return true;
  }

  bool read_system(const json& record) {
    for (const char* name : {"system", "system_prompt"}) {
      const auto found = record.find(name);
      if (found == record.end() || found->is_null()) continue;
      if (!found->is_string())
        return refuse(Skip::malformed,
                      fmt::format("\"{}\" is a JSON {}, wanted a text", name, found->type_name()));
      const auto& text = found->get_ref<const std::string&>();
      if (is_blank(text)) continue;
      if (!result_.system.empty() && text != result_.system)
        return refuse(Skip::other_system, "\"system\" and \"system_prompt\" differ");
      result_.system = text;
    }
    return true;
  }

  bool read_turn(const json& message, const std::string& place, Turn& turn) {
    if (!message.is_object())
      return refuse(Skip::malformed,
                    fmt::format("{}is a JSON {}, wanted an object", place, message.type_name()));
    if (!read_plain(message, place, kTurnMarks, turn.target)) return false;
    const json* from = first_of(message, {"from", "role"});
    const json* value = first_of(message, {"value", "content"});
    if (!from || !from->is_string()) return refuse(Skip::malformed, place + "has no role");
    if (!value || !(value->is_string() || value->is_array()))
      return refuse(Skip::malformed, place + "has no text");
    if (says_otherwise(message, *from, *value))
      return refuse(Skip::malformed, place + "has two roles or two texts that differ");
    turn.role = from->get<std::string>();
    auto text = text_of(*value);
    if (!text) return refuse(Skip::other_content, place + "has parts that are no text");
    turn.text = std::move(*text);
    return read_reasoning(message, place, turn);
  }

  bool read_reasoning(const json& message, const std::string& place, Turn& turn) {
    const auto reasoning = reasoning_of(message);
    if (!reasoning)
      return refuse(Skip::other_content, place + "has reasoning that is no text, or two of them");
    const bool answer = canonical_role(turn.role) == "assistant";
    if (!reasoning->empty() && !answer)
      return refuse(Skip::other_content, place + "has reasoning and is no answer");
    turn.reasoning = *reasoning;
    return true;
  }

  static std::string shown(const json& value) { return value.dump().substr(0, 40); }

  Conversation& result_;
};

}  // namespace

Conversation parse_record(const RawRecord& record) {
  Conversation conversation;
  Parser parser(conversation);
  Watch watch;
  try {
    const json value = json::parse(record.text, [&](int depth, auto event, const json& parsed) {
      watch.see(depth, event, parsed);
      return true;
    });
    parser.read(value);
    if (watch.twice())
      parser.refuse(Skip::malformed,
                    fmt::format("has the key \"{}\" twice in one object", *watch.twice()));
  } catch (const json::exception& error) {
    conversation.id = watch.id();
    parser.refuse(Skip::not_json, reason_of(error));
  }
  return conversation;
}

}  // namespace dex
