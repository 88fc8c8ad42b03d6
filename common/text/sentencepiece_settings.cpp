#include "common/text/sentencepiece_settings.h"

#include <cstdint>

#include "common/text/added_tokens.h"

namespace dex {
namespace {

// Field numbers of sentencepiece_model.proto.
enum class ModelField { piece = 1, trainer_spec = 2, normalizer_spec = 3 };
enum class TrainerField { model_type = 3, treat_whitespace_as_suffix = 24, byte_fallback = 35 };
enum class NormalizerField {
  precompiled_charsmap = 2,
  add_dummy_prefix = 3,
  remove_extra_whitespaces = 4,
  escape_whitespaces = 5
};
enum class PieceField { text = 1, type = 3 };
constexpr std::uint64_t kBpe = 2;
constexpr char kControl = 3, kUserDefined = 4;

// The fields of one protobuf message, in order.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and at bytes that are no message.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = int(key >> 3);
    number = 0;
    bytes = rest_.substr(0, 1);  // of a number its first byte
    switch (key & 7) {
      case 0:
        number = varint();
        return true;
      case 1:
        bytes = take(8);
        return true;
      case 2:
        bytes = take(varint());
        return true;
      case 5:
        bytes = take(4);
        return true;
      default:
        return false;
    }
  }

  int field = 0;
  std::uint64_t number = 0;  // of an integer field
  std::string_view bytes;    // of any other field

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view take(std::uint64_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

}  // namespace

SentencePieceSettings read_sentencepiece_settings(std::string_view bytes) {
  SentencePieceSettings settings;
  bool bpe = false, byte_fallback = false, suffix = false, escapes = true, maps_characters = false;
  for (Fields model(bytes); model.next();) {
    if (model.field == int(ModelField::trainer_spec)) {
      for (Fields spec(model.bytes); spec.next();) switch (static_cast<TrainerField>(spec.field)) {
          case TrainerField::model_type:
            bpe = spec.number == kBpe;
            break;
          case TrainerField::treat_whitespace_as_suffix:
            suffix = spec.number != 0;
            break;
          case TrainerField::byte_fallback:
            byte_fallback = spec.number != 0;
            break;
        }
    } else if (model.field == int(ModelField::normalizer_spec)) {
      for (Fields spec(model.bytes); spec.next();)
        switch (static_cast<NormalizerField>(spec.field)) {
          case NormalizerField::precompiled_charsmap:
            maps_characters = !spec.bytes.empty();
            break;
          case NormalizerField::add_dummy_prefix:
            settings.dummy_prefix = spec.number != 0;
            break;
          case NormalizerField::remove_extra_whitespaces:
            settings.strips_spaces = spec.number != 0;
            break;
          case NormalizerField::escape_whitespaces:
            escapes = spec.number != 0;
            break;
        }
    }
  }
  settings.words_are_apart =
      bpe && byte_fallback && !suffix && escapes && !maps_characters && !settings.strips_spaces;
  return settings;
}

std::vector<int> hide_tags(std::string& bytes) {
  std::vector<int> hidden;
  int id = 0;
  for (Fields model(bytes); model.next();) {
    if (model.field != int(ModelField::piece)) continue;
    std::string_view text, type;
    for (Fields piece(model.bytes); piece.next();) {
      if (piece.field == int(PieceField::text)) text = piece.bytes;
      if (piece.field == int(PieceField::type)) type = piece.bytes;
    }
    if (!type.empty() && type.front() == kUserDefined && is_tag(text)) {
      bytes[std::size_t(type.data() - bytes.data())] = kControl;
      hidden.push_back(id);
    }
    ++id;
  }
  return hidden;
}

}  // namespace dex
