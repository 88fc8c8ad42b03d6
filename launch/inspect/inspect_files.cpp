// Files that stand for themselves: tensors, JSON lines, HDF5.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/error.h"
#include "common/base/h5.h"
#include "common/base/mapped_file.h"
#include "common/base/safetensors.h"
#include "data/token_shards.h"
#include "launch/inspect/inspection.h"
#include "launch/inspect/tensor_table.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

}  // namespace

Inspection inspect_weights(const fs::path& path) {
  const WeightFile weights = WeightFile::open(path);
  const TensorTable table(weights);
  std::string text = fmt::format("safetensors {}\n", weights.origin()) + table.text();
  if (!weights.metadata().empty()) {
    Rows rows;
    for (const auto& [key, value] : weights.metadata()) rows.push_back({key, value});
    text += "metadata\n" + columns(rows);
  }
  json facts = table.facts();
  facts["kind"] = "safetensors";
  facts["metadata"] = weights.metadata();
  return {std::move(text), std::move(facts)};
}

Inspection inspect_jsonl(const fs::path& path) {
  const MappedFile file(path);
  std::map<std::string, std::uint64_t> fields;
  std::vector<std::uint64_t> bad;
  std::uint64_t lines = 0, blank = 0, objects = 0;
  for (std::string_view rest = file.text(); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++lines;
    if (line.find_first_not_of(" \t\r") == line.npos) {
      ++blank;
      continue;
    }
    const json value = json::parse(line.begin(), line.end(), nullptr, false);
    if (value.is_object()) {
      ++objects;
      for (const auto& [key, field] : value.items()) ++fields[key];
    } else {
      bad.push_back(lines);
    }
  }
  Rows rows{{"lines", grouped(lines)},
            {"objects", grouped(objects)},
            {"blank", grouped(blank)},
            {"no JSON object", grouped(bad.size())}};
  constexpr std::size_t kShown = 10;
  if (!bad.empty())
    rows.push_back(
        {"first of these",
         fmt::format("lines {}",
                     fmt::join(bad.begin(),
                               bad.begin() + std::ptrdiff_t(std::min(bad.size(), kShown)), ", "))});
  std::string text = fmt::format("JSON lines {}\n", path.string()) + columns(rows);
  Rows field_rows;
  for (const auto& [key, count] : fields)
    field_rows.push_back({key, fmt::format("in {}", grouped(count))});
  if (!fields.empty()) text += "fields\n" + columns(field_rows);
  json facts = {{"kind", "jsonl"}, {"lines", lines},   {"objects", objects},
                {"blank", blank},  {"bad_lines", bad}, {"fields", fields}};
  return {std::move(text), std::move(facts), bad.empty() ? ExitCode::done : ExitCode::bad_rows};
}

Inspection inspect_hdf5(const fs::path& path) {
  verify_if_listed(path);
  const H5Reader file(path);
  file.read_through();
  Rows rows;
  json facts = {{"kind", "hdf5"}, {"format", file.text_attribute("format")}};
  for (const std::string& name : file.names()) {
    facts["shapes"][name] = file.shape(name);
    rows.push_back({name, fmt::format("[{}]", fmt::join(file.shape(name), ", "))});
  }
  return {fmt::format("HDF5 {} ({})\n", path.string(), facts["format"].get<std::string>()) +
              columns(rows),
          std::move(facts)};
}

}  // namespace dex
