#include "common/text/bpe_file.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/json_file.h"
#include "common/text/byte_alphabet.h"

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
  Reader(const json& file, const std::string& place) : file_(file), place_(place) {}

  BpeFile read() {
    BpeFile result;
    read_vocabulary(result);
    read_added(result);
    read_merges(result);
    read_normalizer(field(file_, "normalizer"), result);
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
    constexpr std::int64_t kMost = 1 << 24;  // the largest published vocabularies have 2^18 ids
    require(value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                value.get<std::int64_t>() < kMost,
            ExitCode::usage, "{}: the id of \"{}\" is {}; wanted a number from 0 to {}", place_,
            text, value.dump(), kMost - 1);
    return value.get<Token>();
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
      for (const char* name : {"lstrip", "rstrip", "single_word"})
        want(token, name, false, "the added token \"" + text + "\"");
      const Token id = id_in(field(token, "id"), text);
      Piece& piece = piece_at(result, id);
      piece = {text, text, true, field(token, "special") == json(true)};
      result.added.add(text, id);
    }
  }

  // "a b" in older files, ["a", "b"] in newer ones.
  std::pair<std::string, std::string> pair_in(const json& merge) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse("a merge", merge.dump(), "\"a b\" or [\"a\", \"b\"]");
  }

  void read_merges(BpeFile& result) {
    const json& merges = field(field(file_, "model"), "merges");
    require(merges.is_array(), ExitCode::usage, "{}: model.merges is {}; wanted a list", place_,
            merges.type_name());
    const auto id_of = [&](const std::string& text) {
      const auto found = ids_.find(text);
      require(found != ids_.end(), ExitCode::usage,
              "{}: a merge names \"{}\", which is not in model.vocab", place_, text);
      return found->second;
    };
    for (const json& merge : merges) {
      const auto [left, right] = pair_in(merge);
      const Merge ids{id_of(left), id_of(right), id_of(left + right)};
      const auto is_added = [&](Token id) { return result.pieces[id].added; };
      // Text must never merge into an added token.
      if (!is_added(ids.left) && !is_added(ids.right) && !is_added(ids.result))
        result.merges.push_back(ids);
    }
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
  std::unordered_map<std::string, Token> ids_;
  bool byte_level_ = false;
};

}  // namespace

std::optional<BpeFile> read_bpe_file(const std::string& bytes, const std::string& place,
                                     std::string& other) {
  const json file = parse_json_object(bytes, place);
  const std::string type = type_of(field(file, "model"));
  const std::string before = field(file, "pre_tokenizer").dump();
  if (type != "BPE" || before.find("\"ByteLevel\"") == std::string::npos) {
    other = "a model of type " + type + " with the pre-tokenizer " + before.substr(0, 100);
    return std::nullopt;
  }
  return Reader(file, place).read();
}

}  // namespace dex
