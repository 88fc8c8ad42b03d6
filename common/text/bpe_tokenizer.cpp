#include "common/text/bpe_tokenizer.h"

#include <utility>

#include "common/base/digest.h"
#include "common/text/bpe_file.h"
#include "common/text/bpe_model.h"
#include "common/text/nfc.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeFile file, const std::string& place, std::string digest)
      : pieces_(std::move(file.pieces)),
        added_(std::move(file.added)),
        splitter_(file.rules, place),
        model_(std::move(file.plain), file.merges, file.whole_words_first),
        nfc_(file.nfc),
        begin_(file.begin) {
    digest_ = std::move(digest);
  }

  std::vector<Token> encode(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    return ids_of(text, AddedTokens::Controls::stay_text);
  }

  std::vector<Token> encode_continuation(std::string_view text) const override {
    return encode(text);
  }

  std::vector<Token> encode_with_special(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    return ids_of(text, AddedTokens::Controls::become_ids);
  }

  std::string decode(std::span<const Token> ids, bool) const override {
    std::string text;
    for (const Token id : ids)
      if (has(id) && !is_special(id)) text += piece(id).bytes;
    return text;
  }

  int size() const override { return pieces_.size(); }
  bool is_special(Token id) const override { return has(id) && piece(id).special; }
  std::optional<Token> special_id(std::string_view text) const override {
    return added_.id_of(text);
  }
  std::optional<Token> bos_id() const override { return begin_; }
  std::string text_of_id(Token id) const override { return has(id) ? piece(id).stored : ""; }

 private:
  bool has(Token id) const { return id >= 0 && id < size(); }
  const Piece& piece(Token id) const { return pieces_[id]; }

  std::vector<Token> ids_of(std::string_view text, AddedTokens::Controls controls) const {
    using Stage = AddedTokens::Stage;
    std::vector<Token> ids;
    const auto token = [&](Token id) { ids.push_back(id); };
    added_.cut(
        text, Stage::as_typed, controls,
        [&](std::string_view plain) {
          std::string normal;
          if (nfc_) plain = to_nfc(plain, normal);
          added_.cut(
              plain, Stage::normalized, controls, [&](std::string_view part) { append(part, ids); },
              token);
        },
        token);
    return ids;
  }

  void append(std::string_view text, std::vector<Token>& ids) const {
    std::vector<std::string_view> words;
    splitter_.split(text, words);
    for (const std::string_view word : words) model_.append(word, ids);
  }

  std::vector<Piece> pieces_;
  AddedTokens added_;
  PreTokenizer splitter_;
  BpeModel model_;
  bool nfc_;
  std::optional<Token> begin_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_bpe_tokenizer(const std::string& bytes, const std::string& place,
                                              std::string& other, const AddedTokenFiles& beside) {
  auto file = read_bpe_file(bytes, place, other, beside);
  if (!file) return nullptr;
  return std::make_unique<BpeTokenizer>(std::move(*file), place, sha256_of(bytes));
}

}  // namespace dex
