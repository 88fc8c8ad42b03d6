#include "checkpoints/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "dex-checkpoint-1";
constexpr const char* kManifest = "MANIFEST.json";
constexpr std::string_view kPrefix = "step-", kTemporaryPrefix = ".step-";

std::optional<std::int64_t> step_of(const fs::path& dir) {
  const std::string name = dir.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

}  // namespace

std::vector<std::pair<std::int64_t, fs::path>> checkpoints_in(const fs::path& root) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  if (!fs::is_directory(root)) return found;
  for (const auto& entry : fs::directory_iterator(root))
    if (const auto step = step_of(entry.path()); step && entry.is_directory())
      found.emplace_back(*step, entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

namespace {

// What a killed run left behind. One run writes to a root at a time.
void remove_temporaries_in(const fs::path& root) {
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.path().filename().string().starts_with(kTemporaryPrefix))
      fs::remove_all(entry.path());
}

// After a failure, which is the one to tell of.
void tidy(const fs::path& root) {
  try {
    remove_temporaries_in(root);
  } catch (const fs::filesystem_error&) {
  }
}

std::vector<std::string> file_names(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    require(entry.is_regular_file() && !entry.is_symlink(), ExitCode::io, "{}: not a plain file",
            entry.path().string());
    if (entry.path().filename() != kManifest) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void write_manifest(const fs::path& dir, std::int64_t step) {
  json files = json::object();
  for (const std::string& name : file_names(dir)) {
    sync_file(dir / name);
    files[name] = {{"size", fs::file_size(dir / name)}, {"sha256", sha256_of_file(dir / name)}};
  }
  write_file(dir / kManifest,
             json{{"format", kFormat}, {"step", step}, {"files", files}}.dump(2) + "\n");
}

fs::path doomed(const fs::path& root, std::int64_t step) {
  return root / fmt::format("{}{}.doomed", kTemporaryPrefix, step);
}

bool verifies(const fs::path& dir) {
  try {
    verify_checkpoint(dir);
    return true;
  } catch (const Error&) {
    return false;
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

void prune(const fs::path& root, std::int64_t newest, int keep,
           std::optional<std::int64_t> spared) {
  auto found = checkpoints_in(root);
  // Directories past this step are ones that did not verify; they are overwritten when the run gets
  // there.
  std::erase_if(found, [&](const auto& entry) { return entry.first > newest; });
  found.resize(found.size() - std::min(found.size(), std::size_t(keep)));
  std::erase_if(found, [&](const auto& entry) { return entry.first == spared; });
  // Renamed first, and the names synced, so that neither a kill nor a power cut half-way through
  // the removal leaves a torn step-N.
  for (const auto& [step, dir] : found) fs::rename(dir, doomed(root, step));
  if (!found.empty()) sync_directory(root);
  remove_temporaries_in(root);
}

}  // namespace

void save_checkpoint(const fs::path& root, std::int64_t step, int keep,
                     const std::function<void(const fs::path&)>& fill,
                     std::optional<std::int64_t> spared) {
  require(keep >= 1, ExitCode::usage, "at least 1 checkpoint must be kept, not {}", keep);
  make_directory(root);
  const fs::path dir = root / (std::string(kPrefix) + std::to_string(step));
  const fs::path temporary = root / (std::string(kTemporaryPrefix) + std::to_string(step) + ".tmp");
  try {
    remove_temporaries_in(root);
    make_directory(temporary);
    fill(temporary);
    write_manifest(temporary, step);
    sync_directory(temporary);
    if (fs::exists(dir) && verifies(dir)) {
      fs::remove_all(temporary);
      sync_directory(root);  // which the save that left it may not have come to
    } else {
      if (fs::exists(dir)) fs::rename(dir, doomed(root, step));
      rename_durably(temporary, dir);
    }
    prune(root, step, keep, spared);
  } catch (const fs::filesystem_error& error) {
    tidy(root);
    fail(ExitCode::io, "{}: {}", dir.string(), error.what());
  } catch (...) {
    tidy(root);
    throw;
  }
}

void prune_checkpoints(const fs::path& root, std::int64_t step, int keep,
                       std::optional<std::int64_t> spared) {
  try {
    prune(root, step, keep, spared);
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::io, "{}: {}", root.string(), error.what());
  }
}

CheckpointSearch newest_checkpoint(const fs::path& root) {
  CheckpointSearch search;
  auto found = checkpoints_in(root);
  std::reverse(found.begin(), found.end());
  for (const auto& [step, dir] : found) {
    try {
      verify_checkpoint(dir);
      search.step = step;
      search.dir = dir;
      return search;
    } catch (const Error& error) {
      search.passed_over.push_back(error.what());
    } catch (const fs::filesystem_error& error) {
      search.passed_over.push_back(error.what());
    }
  }
  return search;
}

void verify_checkpoint(const fs::path& dir) {
  const std::string place = (dir / kManifest).string();
  require(fs::exists(dir / kManifest), ExitCode::io, "{}: missing, so the checkpoint is not whole",
          place);
  const json manifest = read_json_object(dir / kManifest);
  const auto format = json_field<std::string>(manifest, "format", place);
  require(format == kFormat, ExitCode::io, "{}: format is \"{}\", wanted \"{}\"", place, format,
          kFormat);
  const auto step = json_field<std::int64_t>(manifest, "step", place);
  require(step_of(dir).value_or(step) == step, ExitCode::io,
          "{}: is of step {}, the directory says otherwise", place, step);
  const auto files = json_field<json>(manifest, "files", place);
  require(files.is_object(), ExitCode::io, "{}: files is no object", place);
  for (const std::string& name : file_names(dir))
    require(files.contains(name), ExitCode::io, "{}: does not list {}", place, name);
  for (const auto& [name, entry] : files.items()) {
    const fs::path path = dir / name;
    require(name.find('/') == std::string::npos && fs::is_regular_file(path), ExitCode::io,
            "{}: listed but missing", path.string());
    const auto size = json_field<std::uint64_t>(entry, "size", place);
    require(fs::file_size(path) == size, ExitCode::io, "{}: has {} bytes, the manifest wants {}",
            path.string(), fs::file_size(path), size);
    const auto digest = json_field<std::string>(entry, "sha256", place);
    const std::string seen = sha256_of_file(path);
    require(seen == digest, ExitCode::io, "{}: has digest {}, the manifest wants {}", path.string(),
            seen, digest);
  }
}

}  // namespace dex
