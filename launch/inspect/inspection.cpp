#include "launch/inspect/inspection.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoints/describe.h"
#include "common/base/error.h"
#include "common/base/foreign_file.h"
#include "common/base/json_file.h"
#include "common/base/mapped_file.h"
#include "data/describe_shards.h"
#include "decode/ead/ead_files.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWanted =
    "a model directory or its config.json, safetensors, token shards, adapters, a checkpoint or "
    "training "
    "run, an EAD "
    "measurement, HDF5 or JSON lines";

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isdigit(c) || c == '.' || c == ',';
  });
}

std::string format_of(const fs::path& manifest) {
  const json object = read_json_object(manifest);
  const auto format = object.find("format");
  return format != object.end() && format->is_string() ? format->get<std::string>() : "";
}

bool holds_checkpoints(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.is_directory() && entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

Inspection from_description(const char* kind, std::string text, const fs::path& facts) {
  json object = {{"kind", kind}};
  if (fs::exists(facts)) object[facts.stem().string()] = read_json_object(facts);
  return {std::move(text), std::move(object)};
}

Inspection inspect_trained(const char* kind, const fs::path& dir, const fs::path& facts) {
  const auto text = describe(dir);
  require(text.has_value(), ExitCode::usage, "{}: holds no adapters and no checkpoint",
          dir.string());
  return from_description(kind, *text, facts);
}

Inspection inspect_directory(const fs::path& dir) {
  if (const fs::path manifest = dir / "MANIFEST.json"; fs::exists(manifest)) {
    const std::string format = format_of(manifest);
    if (format.starts_with("dex token shards"))
      return from_description("shards", describe_shards(dir), manifest);
    if (format.starts_with("dex-checkpoint")) return inspect_trained("checkpoint", dir, manifest);
    fail(ExitCode::io, "{}: format is \"{}\"; wanted that of token shards or of a checkpoint",
         manifest.string(), format);
  }
  if (fs::is_directory(dir / "checkpoints") || fs::exists(dir / "metrics.jsonl"))
    return inspect_run(dir);
  if (const fs::path config = dir / "adapter_config.json"; fs::exists(config))
    return inspect_trained("adapters", dir, config);
  if (const fs::path summary = dir / "summary.json";
      fs::exists(summary) && fs::exists(dir / "ead.h5"))
    return from_description("ead", describe_ead(dir), summary);
  if (fs::exists(dir / "config.json")) return inspect_model(dir);
  if (fs::exists(dir / "model.safetensors") || fs::exists(dir / "model.safetensors.index.json"))
    return inspect_weights(dir);
  if (holds_checkpoints(dir)) return inspect_trained("run", dir, "");

  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  constexpr std::size_t kShown = 8;
  const std::string more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  names.resize(std::min(names.size(), kShown));
  fail(ExitCode::usage, "{}: a directory of nothing known (holds {}{}); wanted {}", dir.string(),
       names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", ")), more, kWanted);
}

// A JSON file stands for the directory it describes.
Inspection inspect_json(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".index.json")) return inspect_weights(path);
  if (name == "MANIFEST.json" || name == "adapter_config.json" || name == "summary.json" ||
      name == "state.json")
    return inspect_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
  const json object = read_json_object(path);
  if (object.contains("model_type") || name == "config.json") return inspect_model(path);
  fail(ExitCode::usage, "{}: a JSON object of nothing known; wanted {}", path.string(), kWanted);
}

Inspection inspect_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") return inspect_weights(path);
  if (extension == ".jsonl") return inspect_jsonl(path);
  const MappedFile file(path);
  const std::string_view start = file.text().substr(0, 512);
  if (start.starts_with("\x89HDF\r\n")) return inspect_hdf5(path);
  const std::string hint = foreign_file_hint(start);
  require(hint.empty(), ExitCode::io, "{}: {} bytes, and {}; wanted {}", path.string(),
          file.bytes().size(), hint, kWanted);
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  require(first == start.npos || start[first] != '[', ExitCode::usage,
          "{}: a JSON array; conversations are read by dex prepare --data. Wanted {}",
          path.string(), kWanted);
  if (extension == ".json" || (first != start.npos && start[first] == '{'))
    return inspect_json(path);
  fail(ExitCode::usage, "{}: {} bytes of nothing known; wanted {}", path.string(),
       file.bytes().size(), kWanted);
}

}  // namespace

Inspection inspect(const fs::path& path) {
  require(fs::exists(path), ExitCode::usage, "{}: no such file or directory", path.string());
  Inspection found = fs::is_directory(path) ? inspect_directory(path) : inspect_file(path);
  found.facts["path"] = path.string();
  found.facts["sound"] = found.code == ExitCode::done;
  return found;
}

std::string columns(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size() || (i < row.size() && row.size() > 2); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i)
      line += row.size() > 2 && is_number(row[i]) ? fmt::format(" {:>{}}", row[i], widths[i])
                                                  : fmt::format(" {:<{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, ",");
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double amount = bytes;
  std::size_t unit = 0;
  while (amount >= 1024 && unit + 1 < std::size(kUnits)) {
    amount /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes)
                   : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

}  // namespace dex
