#include "common/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/foreign_file.h"
#include "common/text/added_token_files.h"
#include "common/text/added_tokens.h"
#include "common/text/sentencepiece_settings.h"
#include "common/text/utf8.h"
#include "common/text/whole_words.h"
#include "common/text/word_cache.h"

namespace dex {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space in pieces
// what the library decodes an unknown id to
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";
// A model file that goes on with normalizer_spec { add_dummy_prefix: false }: a later field
// overrides an earlier one.
constexpr std::string_view kNoDummyPrefix("\x1a\x02\x18\x00", 4);

void load(SentencePieceProcessor& processor, const std::string& bytes, const std::string& place) {
  const auto status = processor.LoadFromSerializedProto(bytes);
  if (status.ok() && processor.GetPieceSize() > 0) return;
  std::string hint = foreign_file_hint(bytes);
  if (hint.empty() && bytes.starts_with("IQ== 0"))
    hint = "it is a tiktoken rank list: the model needs its tokenizer.json";
  fail(ExitCode::io, "{}: not a SentencePiece model ({} bytes){}{}", place, bytes.size(),
       hint.empty() ? "" : ": ", hint);
}

std::string text_of_piece(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    if (piece.starts_with(kSpace)) {
      text += ' ';
      piece.remove_prefix(kSpace.size());
    } else {
      text += piece.front();
      piece.remove_prefix(1);
    }
  }
  return text;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& path) {
    std::string bytes = read_file(path);
    digest_ = sha256_of(bytes);
    const std::vector<int> tags = hide_tags(bytes);
    load(whole_, bytes, path.string());
    load(going_on_, bytes + std::string(kNoDummyPrefix), path.string());
    settings_ = read_sentencepiece_settings(bytes);
    const AddedTokenFiles beside = read_added_token_files(path.parent_path());
    for (int id = 0; id < whole_.GetPieceSize(); ++id)
      add_piece(id, std::binary_search(tags.begin(), tags.end(), id), beside);
    if (settings_.words_are_apart && !spaces_only_begin_pieces()) settings_.words_are_apart = false;
    if (settings_.words_are_apart) words_.emplace(texts_of_normal());
    if (whole_.bos_id() >= 0 && beside.begins_texts) begin_ = whole_.bos_id();
    for (const AddedToken& token : beside.tokens) add_token(token, path.string());
  }

  std::vector<Token> encode(std::string_view text) const override {
    return tokenize(text, true, AddedTokens::Controls::stay_text);
  }

  std::vector<Token> encode_continuation(std::string_view text) const override {
    return tokenize(text, false, AddedTokens::Controls::stay_text);
  }

  std::vector<Token> encode_with_special(std::string_view text) const override {
    return tokenize(text, true, AddedTokens::Controls::become_ids);
  }

  std::string decode(std::span<const Token> ids, bool whole) const override {
    std::string text;
    bool at_start = whole && settings_.dummy_prefix;
    for (const Token id : ids) {
      if (!has(id) || is_special(id)) continue;
      const Piece& piece = pieces_[id];
      const bool drop = at_start && piece.stored.starts_with(kSpace);
      text.append(piece.text, drop ? 1 : 0);
      at_start = false;
    }
    return text;
  }

  int size() const override { return pieces_.size(); }
  bool is_special(Token id) const override { return has(id) && pieces_[id].special; }
  std::optional<Token> special_id(std::string_view text) const override {
    return added_.id_of(text);
  }
  std::optional<Token> bos_id() const override { return begin_; }
  std::string text_of_id(Token id) const override { return has(id) ? pieces_[id].stored : ""; }

 private:
  struct Piece {
    std::string stored, text;
    bool special = false;
  };

  bool has(Token id) const { return id >= 0 && id < size(); }

  static std::vector<Token> ids_of(const SentencePieceProcessor& processor, std::string_view text) {
    std::vector<int> ids;
    const auto status = processor.Encode({text.data(), text.size()}, &ids);
    require(status.ok(), ExitCode::bug, "SentencePiece: {}", status.ToString());
    return ids;
  }

  // `whole`: no text stands before this one.
  std::vector<Token> tokenize(std::string_view text, bool whole,
                              AddedTokens::Controls controls) const {
    require_utf8(text, "the text to tokenize");
    std::vector<Token> ids;
    bool go_on = !whole;
    added_.cut(
        text, AddedTokens::Stage::as_typed, controls,
        [&](std::string_view plain) {
          if (go_on)
            append_continuation(plain, ids);
          else
            append(plain, true, ids);
          go_on = false;
        },
        [&](Token id) {
          ids.push_back(id);
          go_on = false;
        });
    return ids;
  }

  void append_continuation(std::string_view text, std::vector<Token>& ids) const {
    // A model that strips leading spaces would lose this one; there the dummy space has to stand
    // for it.
    const bool swap = settings_.strips_spaces && settings_.dummy_prefix && text.starts_with(' ');
    append(swap ? text.substr(1) : text, swap, ids);
  }

  void append(std::string_view text, bool whole, std::vector<Token>& ids) const {
    if (!words_) {
      const std::vector<Token> all = ids_of(whole ? whole_ : going_on_, text);
      ids.insert(ids.end(), all.begin(), all.end());
    } else if (whole && settings_.dummy_prefix && !text.empty()) {
      append_words(" " + std::string(text), ids);
    } else {
      append_words(text, ids);
    }
  }

  // No piece goes on from a letter to a space, so none can be put together across such a place:
  // words are tokenized one by one, and most of them are looked up.
  void append_words(std::string_view text, std::vector<Token>& ids) const {
    const auto tokenize = [this](std::string_view word) { return ids_of(going_on_, word); };
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin + 1;
      while (end < text.size() &&
             !(text[end] == ' ' && text[end - 1] != ' ' && !text.substr(0, end).ends_with(kSpace)))
        ++end;
      const std::string_view word = text.substr(begin, end - begin);
      if (const Token known = words_->find(word, tokenize); known >= 0)
        ids.push_back(known);
      else
        cache_.append(word, tokenize, ids);
      begin = end;
    }
  }

  bool spaces_only_begin_pieces() const {
    for (const Piece& piece : pieces_)
      if (const std::size_t letter = piece.stored.find_first_not_of(kSpace);
          letter != std::string::npos)
        if (piece.stored.find(kSpace, letter) != std::string::npos) return false;
    return true;
  }

  std::vector<std::string> texts_of_normal() const {
    std::vector<std::string> texts(pieces_.size());
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      const int piece = int(id);
      if (!whole_.IsControl(piece) && !whole_.IsUnknown(piece) && !whole_.IsByte(piece))
        texts[id] = pieces_[id].text;
    }
    return texts;
  }

  void add_piece(int id, bool tag, const AddedTokenFiles& beside) {
    Piece piece{whole_.IdToPiece(id), "", whole_.IsControl(id) && !tag};
    const bool word = !whole_.IsUnknown(id) && !whole_.IsByte(id);
    if (whole_.IsUnknown(id))
      piece.text = kUnknown;
    else if (whole_.IsByte(id))
      piece.text = char(std::strtol(piece.stored.c_str() + 1, nullptr, 16));
    else
      piece.text = text_of_piece(piece.stored);
    if (word && is_tag(piece.stored) && beside.roles.contains(piece.stored)) piece.special = true;
    if (piece.special || tag)
      added_.add({.text = piece.stored, .id = id, .special = piece.special},
                 tag ? piece.text : piece.stored);
    pieces_.push_back(std::move(piece));
  }

  void add_token(AddedToken token, const std::string& place) {
    if (token.id < whole_.GetPieceSize()) {  // the model file has it
      const Piece& piece = pieces_[token.id];
      if (piece.stored != token.text && piece.text != token.text)
        spdlog::warn("{}: a file beside it says that {} is \"{}\"; here it is \"{}\", which holds",
                     place, token.id, token.text, piece.stored);
      return;
    }
    if (const auto known = added_.id_of(token.text)) {
      spdlog::warn("{}: a file beside it says that {} is \"{}\"; here {} is, which holds", place,
                   token.id, token.text, *known);
      return;
    }
    if (token.id >= size()) pieces_.resize(std::size_t(token.id) + 1);
    pieces_[token.id] = {token.text, token.text, token.special};
    token.normalized = false;  // there is no form of text between the typed one and the library
    added_.add(token);
  }

  SentencePieceProcessor whole_, going_on_;  // with and without the dummy space
  std::vector<Piece> pieces_;
  AddedTokens added_;
  SentencePieceSettings settings_;
  std::optional<WholeWords> words_;  // where words can be tokenized one by one
  mutable WordCache cache_;          // of those that are several pieces
  std::optional<Token> begin_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece_tokenizer(const std::filesystem::path& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace dex
