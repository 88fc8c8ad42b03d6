#include "data/manifest.h"

#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kName = "MANIFEST.json";

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ShardFacts, tokenizer_digest, template_name, template_digest,
                                   source_digest, vocabulary, max_len, counts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SourceNote, name, bytes, cut, cut_record, cut_offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ShardFile, file, sha256, bytes, samples, tokens, supervised)

std::string skipped_text(const std::map<std::string, std::int64_t>& counts) {
  constexpr std::string_view kSkipped = "skipped.";
  std::string text;
  for (const auto& [name, count] : counts)
    if (name.starts_with(kSkipped) && count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name.substr(kSkipped.size()));
  return text;
}

SplitTotals totals_of(const std::vector<ShardFile>& files) {
  SplitTotals totals{.shards = files.size()};
  for (const ShardFile& file : files) {
    totals.samples += file.samples;
    totals.tokens += file.tokens;
    totals.supervised += file.supervised;
  }
  return totals;
}

std::string Manifest::data_digest() const {
  Sha256 digest;
  for (const auto& [split, files] : splits)
    for (const ShardFile& file : files) digest.add(split + " " + file.sha256 + "\n");
  return digest.hex();
}

void write_manifest(const fs::path& dir, const Manifest& manifest) {
  json object = {{"format", "dex token shards"}, {"version", kVersion},
                 {"facts", manifest.facts},      {"source", manifest.source},
                 {"model", manifest.model},      {"splits", manifest.splits}};
  object["digest"] = sha256_of(object.dump());
  write_file(dir / kName, object.dump(2) + "\n");
}

Manifest read_manifest(const fs::path& dir) {
  const fs::path path = dir / kName;
  require(fs::is_directory(dir), ExitCode::usage, "{}: no such directory", dir.string());
  require(fs::exists(path), ExitCode::usage, "{}: no data set: {} is missing", dir.string(), kName);
  json object = read_json_object(path);
  try {
    const std::string seen = object.at("digest");
    object.erase("digest");
    const std::string wanted = sha256_of(object.dump());
    require(seen == wanted, ExitCode::io, "{}: altered: its digest is {}, it says {}",
            path.string(), wanted, seen);
    require(object.at("version") == kVersion, ExitCode::io, "{}: version {}, wanted {}",
            path.string(), object.at("version").dump(), kVersion);
    return {object.at("facts"), object.at("source"), object.at("model"), object.at("splits")};
  } catch (const json::exception& error) {
    fail(ExitCode::io, "{}: altered: {}", path.string(), error.what());
  }
}

}  // namespace dex
