// Text to ids and back. Two makes, chosen by the files of a model directory: tokenizer.json
// (byte-level BPE) and tokenizer.model (SentencePiece). Thread-safe once loaded.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token.h"

namespace dex {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of text that somebody typed: as the reference library gives them, but that a control stays
  // text. Controls are the tokens that steer a model: special ones (<|im_end|>), and tags that a
  // file has as ordinary added tokens (<think>, [TOOL]); none of their ids ever comes out. Other
  // added tokens, such as letters and runs of spaces, are found in the text as the reference finds
  // them. Invalid UTF-8 is an Error(usage).
  virtual std::vector<Token> encode(std::string_view text) const = 0;

  // The same for text that goes on from other text: SentencePiece puts no dummy space before it.
  virtual std::vector<Token> encode_continuation(std::string_view text) const = 0;

  // As encode, but controls become their ids, too: all ids are the reference's. For raw prompts, on
  // request only.
  virtual std::vector<Token> encode_with_special(std::string_view text) const = 0;

  // The text of ids; special ids and ids that the tokenizer does not have are left out. The dummy
  // space that SentencePiece puts before a whole text is dropped only when `whole` is set. May end
  // inside a UTF-8 sequence.
  virtual std::string decode(std::span<const Token> ids, bool whole = true) const = 0;

  virtual int size() const = 0;                 // last id + 1
  virtual bool is_special(Token id) const = 0;  // never part of decoded text
  // of an added token or a control piece: "</s>", "<|im_end|>", "<think>", ...
  virtual std::optional<Token> special_id(std::string_view text) const = 0;
  // what the model wants before a raw prompt
  virtual std::optional<Token> bos_id() const = 0;
  virtual std::string text_of_id(Token id) const = 0;  // the stored piece, for inspection

  const std::string& digest() const { return digest_; }  // SHA-256 of the file it was read from

 protected:
  std::string digest_;
};

// Prefers tokenizer.json with a byte-level BPE model, then tokenizer.model. Throws Error(usage)
// naming the path, and says when the file is a pointer or a web page instead.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model_dir);

// Text as it grows, token by token: holds back bytes that do not yet end a UTF-8 sequence. The
// concatenation of all add() and finish() results equals decode() of all ids (bytes that never
// become valid come out as U+FFFD).
class TextStream {
 public:
  // `continuation`: the text goes on from a prompt, so the first token keeps its leading space.
  TextStream(const Tokenizer& tokenizer, bool continuation);
  std::string add(std::span<const Token> ids);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool at_start_;
  std::string held_;
};

}  // namespace dex
