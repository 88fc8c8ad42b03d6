#include "common/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/control_strings.h"
#include "common/digest.h"
#include "common/error.h"
#include "common/file.h"
#include "common/foreign_file.h"
#include "common/utf8.h"

namespace dex {
namespace {

using nlohmann::json;
using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpace = "\xE2\x96\x81";            // U+2581 stands for a space in pieces
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";        // what the library decodes an unknown id to
// A model file that goes on with normalizer_spec { add_dummy_prefix: false }: a later field overrides an earlier one.
constexpr std::string_view kNoDummyPrefix("\x1a\x02\x18\x00", 4);

void load(SentencePieceProcessor& processor, const std::string& bytes, const std::string& place) {
  const auto status = processor.LoadFromSerializedProto(bytes);
  if (status.ok() && processor.GetPieceSize() > 0) return;
  std::string hint = foreign_file_hint(bytes);
  if (hint.empty() && bytes.starts_with("IQ== 0")) hint = "it is a tiktoken rank list: the model needs its tokenizer.json";
  fail(ExitCode::io, "{}: not a SentencePiece model ({} bytes){}{}", place, bytes.size(), hint.empty() ? "" : ": ", hint);
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
    const std::string bytes = read_file(path);
    load(whole_, bytes, path.string());
    load(going_on_, bytes + std::string(kNoDummyPrefix), path.string());
    for (int id = 0; id < whole_.GetPieceSize(); ++id) add_piece(id);
    dummy_prefix_ = ids_of(whole_, "a") != ids_of(going_on_, "a");
    trims_ = ids_of(whole_, "  a") == ids_of(whole_, "a");
    if (whole_.bos_id() >= 0) begin_ = whole_.bos_id();
    read_config(path.parent_path() / "tokenizer_config.json");
    digest_ = sha256_of(bytes);
  }

  std::vector<Token> encode(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    return ids_of(whole_, text);
  }

  std::vector<Token> encode_continuation(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    // A model that strips leading spaces would lose this one; there the dummy space has to stand for it.
    if (trims_ && dummy_prefix_ && text.starts_with(' ')) return ids_of(whole_, text.substr(1));
    return ids_of(going_on_, text);
  }

  std::vector<Token> encode_with_controls(std::string_view text) const override {
    require_utf8(text, "the text to tokenize");
    std::vector<Token> ids;
    const auto plain = [&](std::string_view part) {
      const std::vector<Token> more = ids_of(whole_, part);
      ids.insert(ids.end(), more.begin(), more.end());
    };
    cut_at_controls(controls_, text, plain, [&](Token id) { ids.push_back(id); });
    return ids;
  }

  std::string decode(std::span<const Token> ids, bool whole) const override {
    std::string text;
    bool at_start = whole && dummy_prefix_;
    for (const Token id : ids) {
      if (!has(id) || is_control(id)) continue;
      const Piece& piece = pieces_[static_cast<std::size_t>(id)];
      const bool drop = at_start && piece.stored.starts_with(kSpace);
      text.append(piece.text, drop ? 1 : 0);
      at_start = false;
    }
    return text;
  }

  int size() const override { return static_cast<int>(pieces_.size()); }
  bool is_control(Token id) const override { return has(id) && pieces_[static_cast<std::size_t>(id)].control; }
  std::optional<Token> control_id(std::string_view text) const override { return controls_.id_of(text); }
  std::optional<Token> begin_id() const override { return begin_; }
  std::string text_of_id(Token id) const override {
    return has(id) ? pieces_[static_cast<std::size_t>(id)].stored : "";
  }

 private:
  struct Piece {
    std::string stored, text;
    bool control = false;
  };

  bool has(Token id) const { return id >= 0 && id < size(); }

  static std::vector<Token> ids_of(const SentencePieceProcessor& processor, std::string_view text) {
    std::vector<int> ids;
    const auto status = processor.Encode({text.data(), text.size()}, &ids);
    require(status.ok(), ExitCode::bug, "SentencePiece: {}", status.ToString());
    return ids;
  }

  void add_piece(int id) {
    Piece piece{whole_.IdToPiece(id), "", whole_.IsControl(id)};
    if (whole_.IsUnknown(id)) piece.text = kUnknown;
    else if (whole_.IsByte(id)) piece.text = static_cast<char>(std::strtol(piece.stored.c_str() + 1, nullptr, 16));
    else piece.text = text_of_piece(piece.stored);
    if (piece.control) controls_.add(piece.stored, id);
    pieces_.push_back(std::move(piece));
  }

  void read_config(const std::filesystem::path& path) {
    if (!std::filesystem::exists(path)) return;
    const json config = json::parse(read_file(path), nullptr, false);
    require(config.is_object(), ExitCode::io, "{}: not a JSON object", path.string());
    if (config.value("add_bos_token", json()) == json(false)) begin_.reset();
    for (const auto& [key, token] : config.value("added_tokens_decoder", json::object()).items())
      add_token(std::atoi(key.c_str()), token, path.string());
  }

  void add_token(Token id, const json& token, const std::string& place) {
    constexpr int kMost = 1 << 24;
    const std::string text = token.is_object() ? token.value("content", "") : "";
    require(id >= 0 && id < kMost && !text.empty(), ExitCode::usage, "{}: added_tokens_decoder has id {} with {}", place,
            id, token.dump());
    if (id < whole_.GetPieceSize()) return;  // the model file has it
    if (id >= size()) pieces_.resize(static_cast<std::size_t>(id) + 1);
    pieces_[static_cast<std::size_t>(id)] = {text, text, token.value("special", false)};
    controls_.add(text, id);
  }

  SentencePieceProcessor whole_, going_on_;  // with and without the dummy space
  std::vector<Piece> pieces_;
  ControlStrings controls_;
  bool dummy_prefix_ = false, trims_ = false;
  std::optional<Token> begin_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece_tokenizer(const std::filesystem::path& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace dex
