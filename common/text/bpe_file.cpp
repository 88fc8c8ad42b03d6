#include "common/text/bpe_file.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/json_file.h"
#include "common/text/byte_alphabet.h"
#include "common/text/nfc.h"

namespace dex {
namespace {

using nlohmann::json;

const json& field(const json& object, const char* name) {
  static const json absent;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : absent;
}

std::string type_of(const json& part) {
  const json& type = field(part, "type");
  return type.is_string() ? type.get<std::string>() : part.is_null() ? "none" : "without a type";
}

class Reader {
 public:
  Reader(const json& file, const std::string& place, const AddedTokenFiles& beside)
      : file_(file), place_(place), beside_(beside) {}

  BpeFile read() {
    BpeFile result;
    read_vocabulary(result);
    read_normalizer(field(file_, "normalizer"), result);
    read_added(result);
    add_tokens_beside(result);
    add_roles(result);
    read_plain(result);
    read_merges(result);
    read_pre_tokenizer(field(file_, "pre_tokenizer"), result);
    read_begin(field(file_, "post_processor"), result);
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& seen,
                           const std::string& supported) const {
    fail(ExitCode::usage, "{}: {} is {}; supported is {}", place_, what, seen, supported);
  }

  // A switch that this reader knows only one position of.
  void want(const json& object, const char* name, const json& wanted,
            const std::string& where) const {
    const json& seen = field(object, name);
    const bool unset = seen.is_null() || seen == json("") || seen == json(false);
    if (!(seen == wanted || (unset && (wanted == json(false) || wanted.is_null()))))
      refuse(where + "." + name, seen.dump(), wanted.dump());
  }

  Token id_in(const json& value, const std::string& text) const {
    require(value.is_number_integer(), ExitCode::usage,
            "{}: the id of \"{}\" is {}; wanted a number", place_, text, value.dump());
    return checked_token_id(value.get<std::int64_t>(), fmt::format("{}: \"{}\" has", place_, text));
  }

  Piece& piece_at(BpeFile& result, Token id) const {
    const auto at = std::size_t(id);
    if (at >= result.pieces.size()) result.pieces.resize(at + 1);
    return result.pieces[at];
  }

  void read_vocabulary(BpeFile& result) {
    const json& model = field(file_, "model");
    want(model, "dropout", nullptr, "model");
    want(model, "continuing_subword_prefix", nullptr, "model");
    want(model, "end_of_word_suffix", nullptr, "model");
    want(model, "byte_fallback", false, "model");
    result.whole_words_first = field(model, "ignore_merges") == json(true);
    const json& vocabulary = field(model, "vocab");
    require(vocabulary.is_object() && !vocabulary.empty(), ExitCode::usage,
            "{}: model.vocab is {}; wanted an object of ids", place_, vocabulary.type_name());
    for (const auto& [text, value] : vocabulary.items()) {
      Piece& piece = piece_at(result, id_in(value, text));
      require(piece.stored.empty(), ExitCode::usage, "{}: \"{}\" and \"{}\" both have id {}",
              place_, piece.stored, text, value.dump());
      piece.stored = text;
      piece.bytes = from_byte_alphabet(text).value_or(text);
      ids_.emplace(text, value.get<Token>());
    }
    // With an id for every byte nothing is unknown; without one and without unk_token the reference
    // drops the byte.
    for (int byte = 0; byte < 256; ++byte)
      if (!ids_.contains(to_byte_alphabet(std::string(1, char(byte)))))
        want(model, "unk_token", nullptr, "model");
  }

  void read_added(BpeFile& result) {
    for (const json& token : field(file_, "added_tokens")) {
      const json& content = field(token, "content");
      require(content.is_string() && !content.get_ref<const std::string&>().empty(),
              ExitCode::usage, "{}: an added token has the content {}; wanted a text", place_,
              content.dump());
      const auto text = content.get<std::string>();
      const auto flag = [&](const char* name) { return field(token, name) == json(true); };
      add({.text = text,
           .id = id_in(field(token, "id"), text),
           .special = flag("special") || beside_.roles.contains(text),
           .normalized = flag("normalized"),
           .single_word = flag("single_word"),
           .lstrip = flag("lstrip"),
           .rstrip = flag("rstrip")},
          result);
    }
  }

  void add(const AddedToken& token, BpeFile& result) const {
    const bool control = is_control(token);
    const auto listed = ids_.find(token.text);
    require(!control || listed == ids_.end() || listed->second == token.id, ExitCode::usage,
            "{}: the added token \"{}\" has the id {}; wanted {}, which model.vocab gives it",
            place_, token.text, token.id, listed == ids_.end() ? 0 : listed->second);
    for (const auto& [name, set] : {std::pair("lstrip", token.lstrip),
                                    {"rstrip", token.rstrip},
                                    {"single_word", token.single_word}})
      if (control && set)
        refuse(fmt::format("the added token \"{}\".{}", token.text, name), "true",
               "false for special tokens and tags");
    Piece& piece = piece_at(result, token.id);
    piece = {token.text, token.text, true, control, token.special};
    std::string made;
    const bool normalize = token.normalized && result.nfc;
    result.added.add(token, normalize ? std::string(to_nfc(token.text, made)) : token.text);
  }

  // Those of the files beside this one that it does not have.
  void add_tokens_beside(BpeFile& result) const {
    for (AddedToken token : beside_.tokens) {
      const auto known = result.added.id_of(token.text);
      const auto in_vocabulary = ids_.find(token.text);
      const Token id = known                         ? *known
                       : in_vocabulary != ids_.end() ? in_vocabulary->second
                                                     : token.id;
      const bool taken = id == token.id && !known && in_vocabulary == ids_.end() &&
                         std::size_t(id) < result.pieces.size() &&
                         !result.pieces[id].stored.empty();
      if (id != token.id || taken)
        spdlog::warn("{}: a file beside it says that {} is \"{}\"; here {} is \"{}\", which holds",
                     place_, token.id, token.text, id, result.pieces[id].stored);
      if (known || taken) continue;
      token.id = id;
      add(token, result);
    }
  }

  // A tag of the vocabulary that has a role, such as an eos_token, is a special token though no
  // list of added ones has it.
  void add_roles(BpeFile& result) const {
    for (const std::string& text : beside_.roles) {
      const auto found = ids_.find(text);
      if (found == ids_.end() || !is_tag(text) || result.added.find(text)) continue;
      add({.text = text, .id = found->second, .special = true}, result);
    }
  }

  // "a b" in older files, ["a", "b"] in newer ones.
  std::pair<std::string, std::string> pair_in(const json& merge, std::size_t index) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse(fmt::format("model.merges[{}]", index), merge.dump(), "\"a b\" or [\"a\", \"b\"]");
  }

  Token part_of(const json& merge, std::size_t index, const std::string& text) const {
    const auto found = ids_.find(text);
    require(found != ids_.end(), ExitCode::usage,
            "{}: model.merges[{}] is {}: \"{}\" is not in model.vocab", place_, index, merge.dump(),
            text);
    return found->second;
  }

  void read_merges(BpeFile& result) {
    const json& merges = field(field(file_, "model"), "merges");
    require(merges.is_array(), ExitCode::usage, "{}: model.merges is {}; wanted a list", place_,
            merges.type_name());
    std::vector<Merge> all;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = pair_in(merges[i], i);
      all.push_back({part_of(merges[i], i, left), part_of(merges[i], i, right),
                     part_of(merges[i], i, left + right)});
    }
    require_enough(all, result);
    for (const Merge& merge : all) {
      const auto is_control = [&](Token id) { return result.pieces[id].control; };
      // Text must never merge into a control.
      if (!is_control(merge.left) && !is_control(merge.right) && !is_control(merge.result))
        result.merges.push_back(merge);
    }
  }

  // A trained vocabulary has a merge for each entry that is longer than a byte, so entries that no
  // chain of merges makes show that merges are missing: then text would fall to pieces without a
  // word. Added tokens need none.
  void require_enough(const std::vector<Merge>& merges, const BpeFile& result) const {
    const std::vector<bool> made = reached(merges, result);
    std::size_t longer = 0, missing = 0;
    std::string first;
    for (std::size_t id = 0; id < made.size(); ++id) {
      const Piece& piece = result.pieces[id];
      if (piece.added || is_tag(piece.stored) || result.plain[id].size() < 2) continue;
      ++longer;
      if (!made[id] && missing++ == 0) first = piece.stored;
    }
    constexpr std::size_t kMostMissing = 100;  // one in so many
    const std::string seen = fmt::format(
        "{}: model.merges has {} merges; {} of the {} entries of model.vocab that are longer than "
        "a byte are made by none of them, the first is \"{}\"",
        place_, merges.size(), missing, longer, first);
    require(missing * kMostMissing <= longer, ExitCode::usage,
            "{}; wanted at most one in {}: the list is cut or of another tokenizer", seen,
            kMostMissing);
    if (missing > 0) spdlog::warn("{}", seen);
  }

  // Which ids merges can make, beginning with the single bytes.
  std::vector<bool> reached(const std::vector<Merge>& merges, const BpeFile& result) const {
    std::vector<bool> made(result.pieces.size());
    for (const auto& [text, id] : ids_)
      made[id] = from_byte_alphabet(text).value_or("").size() == 1;
    std::vector<Merge> waiting;  // none, where the list is in the order of its making
    for (const Merge& merge : merges) {
      if (made[merge.left] && made[merge.right]) made[merge.result] = true;
      if (!made[merge.result]) waiting.push_back(merge);
    }
    reach(waiting, made);
    return made;
  }

  // Merges in any order: each is looked at again when one of its parts is made.
  static void reach(const std::vector<Merge>& merges, std::vector<bool>& made) {
    std::vector<std::pair<Token, std::size_t>> uses;
    std::vector<int> missing(merges.size());
    std::vector<Token> fresh;
    const auto make = [&](Token id) {
      if (!made[id]) fresh.push_back(id);
      made[id] = true;
    };
    for (std::size_t i = 0; i < merges.size(); ++i)
      for (const Token part : {merges[i].left, merges[i].right})
        if (!made[part]) {
          uses.emplace_back(part, i);
          ++missing[i];
        }
    std::sort(uses.begin(), uses.end());
    for (std::size_t i = 0; i < merges.size(); ++i)
      if (missing[i] == 0) make(merges[i].result);
    while (!fresh.empty()) {
      const Token part = fresh.back();
      fresh.pop_back();
      for (auto use = std::lower_bound(uses.begin(), uses.end(), std::pair(part, std::size_t{0}));
           use != uses.end() && use->first == part; ++use)
        if (--missing[use->second] == 0) make(merges[use->second].result);
    }
  }

  void read_plain(BpeFile& result) const {
    result.plain.resize(result.pieces.size());
    for (const auto& [text, id] : ids_)
      if (!result.pieces[id].control) result.plain[id] = from_byte_alphabet(text).value_or(text);
  }

  void read_normalizer(const json& normalizer, BpeFile& result) {
    const std::string type = type_of(normalizer);
    if (normalizer.is_null()) return;
    if (type == "Sequence") {
      for (const json& part : field(normalizer, "normalizers")) read_normalizer(part, result);
    } else if (type == "NFC") {
      result.nfc = true;
    } else {
      refuse("the normalizer", type, "none, NFC or a Sequence of them");
    }
  }

  void read_pre_tokenizer(const json& part, BpeFile& result) {
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const json& next : field(part, "pretokenizers")) read_pre_tokenizer(next, result);
    } else if (byte_level_) {
      refuse("what follows the pre-tokenizer ByteLevel", type, "nothing");
    } else if (type == "Split") {
      want(part, "behavior", "Isolated", "the pre-tokenizer Split");
      want(part, "invert", false, "the pre-tokenizer Split");
      const json& regex = field(field(part, "pattern"), "Regex");
      if (!regex.is_string())
        refuse("the pattern of Split", field(part, "pattern").dump(), "{\"Regex\": ...}");
      result.rules.push_back({SplitRule::Kind::regex, regex.get<std::string>()});
    } else if (type == "Digits") {
      const bool each = field(part, "individual_digits") == json(true);
      result.rules.push_back({each ? SplitRule::Kind::each_digit : SplitRule::Kind::digits});
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      want(part, "add_prefix_space", false, "the pre-tokenizer ByteLevel");
      if (field(part, "use_regex") != json(false))
        result.rules.push_back({SplitRule::Kind::regex, kByteLevelPattern});
    } else {
      refuse("a pre-tokenizer", type, "Split, Digits, ByteLevel or a Sequence of them");
    }
  }

  void read_begin(const json& part, BpeFile& result) {
    if (type_of(part) == "Sequence")
      for (const json& next : field(part, "processors")) read_begin(next, result);
    if (type_of(part) != "TemplateProcessing") return;
    const json& single = field(part, "single");
    const json first = single.is_array() && !single.empty()
                           ? field(field(single[0], "SpecialToken"), "id")
                           : json();
    if (first.is_string()) result.begin = result.added.id_of(first.get<std::string>());
  }

  const json& file_;
  const std::string& place_;
  const AddedTokenFiles& beside_;
  std::unordered_map<std::string, Token> ids_;
  bool byte_level_ = false;
};

}  // namespace

std::optional<BpeFile> read_bpe_file(const std::string& bytes, const std::string& place,
                                     std::string& other, const AddedTokenFiles& beside) {
  const json file = parse_json_object(bytes, place);
  const std::string type = type_of(field(file, "model"));
  const std::string before = field(file, "pre_tokenizer").dump();
  if (type != "BPE" || before.find("\"ByteLevel\"") == std::string::npos) {
    other = "a model of type " + type + " with the pre-tokenizer " + before.substr(0, 100);
    return std::nullopt;
  }
  return Reader(file, place, beside).read();
}

}  // namespace dex
