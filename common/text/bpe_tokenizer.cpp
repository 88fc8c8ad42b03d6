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

std::vector<std::string> bytes_of_plain(const std::vector<Piece>& pieces) {
  std::vector<std::string> bytes(pieces.size());
  for (std::size_t id = 0; id < pieces.size(); ++id)
    if (!pieces[id].added) bytes[id] = pieces[id].bytes;
  return bytes;
}

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeFile file, const std::string& place, std::string digest)
      : pieces_(std::move(file.pieces)),
        added_(std::move(file.added)),
        splitter_(file.rules, place),
        model_(bytes_of_plain(pieces_), file.merges, file.whole_words_first),
        nfc_(file.nfc),
        begin_(file.begin) {
    digest_ = std::move(digest);
  }

  std::vector<Token> encode(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    std::vector<Token> ids;
    append(text, ids);
    return ids;
  }

  std::vector<Token> encode_continuation(std::string_view text) const override {
    return encode(text);
  }

  std::vector<Token> encode_with_special(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    std::vector<Token> ids;
    cut_at_controls(
        added_, text, [&](std::string_view plain) { append(plain, ids); },
        [&](Token id) { ids.push_back(id); });
    return ids;
  }

  std::string decode(std::span<const Token> ids, bool) const override {
    std::string text;
    for (const Token id : ids)
      if (has(id) && !is_special(id)) text += piece(id).bytes;
    return text;
  }

  int size() const override { return pieces_.size(); }
  bool is_special(Token id) const override { return has(id) && piece(id).control; }
  std::optional<Token> special_id(std::string_view text) const override {
    return added_.id_of(text);
  }
  std::optional<Token> bos_id() const override { return begin_; }
  std::string text_of_id(Token id) const override { return has(id) ? piece(id).stored : ""; }

 private:
  bool has(Token id) const { return id >= 0 && id < size(); }
  const Piece& piece(Token id) const { return pieces_[id]; }

  void append(std::string_view text, std::vector<Token>& ids) const {
    std::string normal;
    if (nfc_) text = to_nfc(text, normal);
    std::vector<std::string_view> words;
    splitter_.split(text, words);
    for (const std::string_view word : words) model_.append(word, ids);
  }

  std::vector<Piece> pieces_;
  SpecialTokens added_;
  PreTokenizer splitter_;
  BpeModel model_;
  bool nfc_;
  std::optional<Token> begin_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_bpe_tokenizer(const std::string& bytes, const std::string& place,
                                              std::string& other) {
  auto file = read_bpe_file(bytes, place, other);
  if (!file) return nullptr;
  return std::make_unique<BpeTokenizer>(std::move(*file), place, sha256_of(bytes));
}

}  // namespace dex
