#include "common/base/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/error.h"
#include "common/base/foreign_file.h"
#include "common/base/json_file.h"

namespace dex {

static_assert(std::endian::native == std::endian::little,
              "safetensors bytes are used as they lie in the file");

namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kAlignment = 64;

struct TypeRow {
  StoredType type;
  const char* name;
  std::size_t size;
};
constexpr TypeRow kTypes[] = {{StoredType::f32, "F32", 4},   {StoredType::f16, "F16", 2},
                              {StoredType::bf16, "BF16", 2}, {StoredType::f64, "F64", 8},
                              {StoredType::i64, "I64", 8},   {StoredType::i32, "I32", 4},
                              {StoredType::u8, "U8", 1}};

const TypeRow& row_of(StoredType type) {
  for (const TypeRow& row : kTypes)
    if (row.type == type) return row;
  fail(ExitCode::bug, "stored type {} has no row", int(type));
}

// One tensor's entry, with the words for what is wrong with it.
class Entry {
 public:
  Entry(const std::string& name, const json& entry, const std::string& place) : entry_(entry) {
    constexpr std::size_t kShown = 120;
    place_ = fmt::format("{}: tensor {}", place,
                         name.size() <= kShown ? name : name.substr(0, kShown) + "...");
    require(entry.is_object(), ExitCode::io, "{}: its entry is a JSON {}; wanted an object", place_,
            entry.type_name());
    for (const auto& [key, value] : entry.items())
      require(key == "dtype" || key == "shape" || key == "data_offsets", ExitCode::io,
              "{}: unknown field in its entry; wanted dtype, shape and data_offsets", place_);
  }

  StoredType type() const {
    const json& value = field("dtype");
    for (const TypeRow& row : kTypes)
      if (value == row.name) return row.type;
    fail(ExitCode::io,
         "{}: dtype is {}; wanted F32, F16, BF16, F64, I64, I32 or U8 (quantised weights are not "
         "read)",
         place_, value.is_string() ? value.get<std::string>().substr(0, 20) : value.type_name());
  }

  std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> sizes;
    for (std::uint64_t size : numbers("shape")) sizes.push_back(std::int64_t(size));
    return sizes;
  }

  std::pair<std::uint64_t, std::uint64_t> range(std::uint64_t data_bytes) const {
    const std::vector<std::uint64_t> offsets = numbers("data_offsets");
    require(offsets.size() == 2, ExitCode::io, "{}: data_offsets has {} numbers; wanted 2", place_,
            offsets.size());
    require(
        offsets[0] <= offsets[1] && offsets[1] <= data_bytes, ExitCode::io,
        "{}: data_offsets are [{}, {}] but the file holds {} bytes of data: it is cut or altered",
        place_, offsets[0], offsets[1], data_bytes);
    return {offsets[0], offsets[1]};
  }

  void check_bytes(const std::vector<std::int64_t>& shape, StoredType type,
                   std::uint64_t bytes) const {
    std::uint64_t wanted = size_of(type);
    bool overflow = false;
    for (std::int64_t size : shape)
      overflow |= __builtin_mul_overflow(wanted, std::uint64_t(size), &wanted);
    require(!overflow && wanted == bytes, ExitCode::io,
            "{}: data_offsets span {} bytes but {} [{}] needs {}", place_, bytes, name_of(type),
            fmt::join(shape, ", "), overflow ? "more than 2^64" : std::to_string(wanted));
  }

 private:
  const json& field(const char* name) const {
    require(entry_.contains(name), ExitCode::io, "{}: its entry has no {}", place_, name);
    return entry_.at(name);
  }

  std::vector<std::uint64_t> numbers(const char* name) const {
    const json& list = field(name);
    require(list.is_array(), ExitCode::io, "{}: {} is a JSON {}; wanted an array", place_, name,
            list.type_name());
    std::vector<std::uint64_t> values;
    for (const json& value : list) {
      require(value.is_number_unsigned() &&
                  value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
              ExitCode::io, "{}: {} holds something else than a whole number in 0..2^63-1", place_,
              name);
      values.push_back(value.get<std::uint64_t>());
    }
    return values;
  }

  const json& entry_;
  std::string place_;
};

std::map<std::string, std::string> read_metadata(const json& value, const std::string& place) {
  std::map<std::string, std::string> metadata;
  if (value.is_null()) return metadata;  // some writers put null where they have none
  require(value.is_object(), ExitCode::io, "{}: __metadata__ is a JSON {}; wanted an object", place,
          value.type_name());
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), ExitCode::io, "{}: __metadata__ holds a JSON {}; wanted texts", place,
            text.type_name());
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The hint is asked for only after the bytes were found wrong: a good file's length may begin like
// another format's mark.
[[noreturn]] void refuse_file(std::span<const std::byte> file, const std::string& place,
                              const std::string& why) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 512));
  const std::string hint = foreign_file_hint(start);
  fail(ExitCode::io, "{}: cut, or not a safetensors file ({} bytes): {}", place, file.size(),
       hint.empty() ? why : hint);
}

// The JSON text of the header, once its claimed length is known to lie inside the file.
std::string_view header_text(std::span<const std::byte> file, const std::string& place) {
  if (file.size() < kLengthBytes)
    refuse_file(file, place, "wanted at least the 8 bytes of the header's length");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const std::uint64_t room = file.size() - kLengthBytes;
  if (length > room)
    refuse_file(file, place, fmt::format("its header claims {} bytes; {} are there", length, room));
  if (length < 2 || length > kMaxHeader)
    refuse_file(file, place,
                fmt::format("its header claims {} bytes; wanted 2..{}", length, kMaxHeader));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text.front() != '{') refuse_file(file, place, "its header does not begin with {");
  return text;
}

// The tensors' bytes lie end to end and fill the file: no byte twice, none unclaimed.
void check_coverage(const std::map<std::string, StoredTensor>& tensors,
                    std::span<const std::byte> data, const std::string& place) {
  std::vector<std::span<const std::byte>> ranges;
  for (const auto& [name, tensor] : tensors) ranges.push_back(tensor.bytes);
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data(), a.size()) < std::pair(b.data(), b.size());
  });
  const std::byte* end = data.data();
  for (const auto& range : ranges) {
    require(range.data() == end, ExitCode::io,
            "{}: the tensors' bytes {} at byte {} of the data; wanted end to end", place,
            range.data() < end ? "overlap" : "leave a gap",
            std::min(range.data(), end) - data.data());
    end = range.data() + range.size();
  }
  const auto used = std::size_t(end - data.data());
  require(used == data.size(), ExitCode::io, "{}: holds {} bytes of data but its tensors need {}",
          place, data.size(), used);
}

}  // namespace

const char* name_of(StoredType type) { return row_of(type).name; }
std::size_t size_of(StoredType type) { return row_of(type).size; }

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& place) {
  const std::string_view text = header_text(file, place);
  const json object = parse_json_object(text, place + ": header");
  const auto data = file.subspan(kLengthBytes + text.size());

  SafetensorsHeader header;
  for (const auto& [name, value] : object.items()) {
    if (name == "__metadata__") {
      header.metadata = read_metadata(value, place);
      continue;
    }
    const Entry entry(name, value, place);
    const auto [begin, end] = entry.range(data.size());
    StoredTensor tensor{entry.type(), entry.shape(), data.subspan(begin, end - begin)};
    entry.check_bytes(tensor.shape, tensor.type, tensor.bytes.size());
    header.tensors.emplace(name, std::move(tensor));
  }
  check_coverage(header.tensors, data, place);
  return header;
}

std::string make_safetensors_header(const std::map<std::string, StoredTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  json object = json::object();
  if (!metadata.empty()) object["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = offset + tensor.bytes.size();
    object[name] = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = object.dump();
  text.resize(
      (text.size() + kLengthBytes + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

}  // namespace dex
