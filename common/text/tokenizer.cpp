#include "common/text/tokenizer.h"

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/text/bpe_tokenizer.h"
#include "common/text/sentencepiece_tokenizer.h"
#include "common/text/utf8.h"

namespace dex {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model_dir) {
  namespace fs = std::filesystem;
  require(fs::is_directory(model_dir), ExitCode::usage,
          "{}: no such directory; wanted a model directory", model_dir.string());
  const fs::path json_path = model_dir / "tokenizer.json",
                 model_path = model_dir / "tokenizer.model";
  std::string other;
  if (fs::exists(json_path))
    if (auto tokenizer = read_bpe_tokenizer(read_file(json_path), json_path.string(), other,
                                            read_added_token_files(model_dir)))
      return tokenizer;
  if (fs::exists(model_path)) return read_sentencepiece_tokenizer(model_path);
  require(other.empty(), ExitCode::usage,
          "{}: holds {}; supported are BPE with the pre-tokenizer ByteLevel, or a tokenizer.model "
          "(SentencePiece) beside it",
          json_path.string(), other);
  fail(ExitCode::usage, "{}: has no tokenizer.json and no tokenizer.model", model_dir.string());
}

TextStream::TextStream(const Tokenizer& tokenizer, bool continuation)
    : tokenizer_(tokenizer), at_start_(!continuation) {}

std::string TextStream::add(std::span<const Token> ids) {
  held_ += tokenizer_.decode(ids, at_start_);
  for (const Token id : ids)
    if (id >= 0 && id < tokenizer_.size() && !tokenizer_.is_special(id)) at_start_ = false;
  return take_utf8(held_, false);
}

std::string TextStream::finish() { return take_utf8(held_, true); }

}  // namespace dex
