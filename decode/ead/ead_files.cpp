#include "decode/ead/ead_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"
#include "common/base/numbers.h"
#include "kernels/numbers_version.h"

namespace dex {
namespace {

using Json = nlohmann::json;

constexpr const char* kTable = "ead.h5";
constexpr const char* kPictures = "ead.json";
constexpr const char* kSummary = "summary.json";
constexpr const char* kFiles[] = {kTable, kPictures, kSummary};

constexpr const char* kDefinition =
    "Rows are generated tokens; prompt tokens do not count. A depth's candidate is the best token "
    "of its exit; it is accepted when it is "
    "the final depth's unmasked token (greedy). first: smallest asked depth with an accepted "
    "candidate; stable (the paper's EAD): smallest "
    "asked depth from which on every asked depth's candidate is accepted; hop: number of the first "
    "accepted exit, counted from 1; hop_decs: "
    "the same when each exit proposes its best token that no shallower exit proposed. speedup: "
    "layers / mean stable depth (S_EAD when every "
    "layer is asked, else S_X). rounds: what dex decode --expand full takes for these texts.";

std::string prefix_of(const EadReading& reading) {
  return reading.name == "adapters" ? "adapters." : "bare.";
}

template <typename Value, typename Get>
std::vector<Value> column(const EadReading& reading, Get get) {
  std::vector<Value> values;
  values.reserve(reading.rows.size());
  for (const EadRow& row : reading.rows) values.push_back(get(row));
  return values;
}

void write_table(const std::filesystem::path& path, const Session& session,
                 const std::vector<EadReading>& readings) {
  const DepthSet& depths = session.model().depths;
  const std::uint64_t rows = readings.front().rows.size(), K = std::uint64_t(depths.num_stages());
  H5Writer file(path);
  file.attribute("format", "dex-ead-1");
  file.attribute("definition", kDefinition);
  file.attribute("depths", depths.text());
  file.attribute("model_fingerprint", session.model().fingerprint);
  file.attribute("dtype", name_of(session.model().dtype));
  const EadReading& any = readings.front();
  file.write("text", column<std::int32_t>(any, [](const EadRow& r) { return r.text; }), {rows});
  file.write("position", column<std::int32_t>(any, [](const EadRow& r) { return r.position; }),
             {rows});
  file.write("token", column<std::int32_t>(any, [](const EadRow& r) { return r.token; }), {rows});
  file.write("gap", column<float>(any, [](const EadRow& r) { return r.gap; }), {rows});
  for (const EadReading& reading : readings) {
    std::vector<std::int32_t> candidates;
    std::vector<float> probabilities;
    for (const EadRow& row : reading.rows) {
      candidates.insert(candidates.end(), row.candidates.begin(), row.candidates.end());
      probabilities.insert(probabilities.end(), row.probabilities.begin(), row.probabilities.end());
    }
    const std::string prefix = prefix_of(reading);
    file.write(prefix + "candidates", candidates, {rows, K});
    file.write(prefix + "probabilities", probabilities, {rows, K});
    file.write(
        prefix + "first",
        column<std::int32_t>(reading, [&](const EadRow& r) { return depths.depth(r.ready.first); }),
        {rows});
    file.write(prefix + "stable",
               column<std::int32_t>(reading,
                                    [&](const EadRow& r) { return depths.depth(r.ready.stable); }),
               {rows});
    file.write(prefix + "decs_branch",
               column<std::int32_t>(reading, [](const EadRow& r) { return r.ready.decs_branch; }),
               {rows});
  }
  file.close();
}

Json shares_json(const EadReading& reading, const DepthSet& depths) {
  const EadShares s = shares_of(reading, depths);
  const bool every_layer = depths.num_stages() == depths.num_layers();
  return {{"agreement", s.agreement},
          {"share_first", s.first},
          {"share_stable", s.stable},
          {"mean_first", s.mean_first},
          {"mean_stable", s.mean_stable},
          {every_layer ? "S_EAD" : "S_X", s.speedup},
          {"mean_hop", s.mean_hop},
          {"mean_hop_decs", s.mean_hop_decs},
          {"texts", s.texts},
          {"tokens", reading.rows.size()},
          {"rounds", s.rounds}};
}

// The first text, cut to what a picture can show, as the picture script wants it.
Json map_of(const Session& session, const EadReading& reading,
            const std::vector<std::string>& names) {
  constexpr int kShown = 64;
  const DepthSet& depths = session.model().depths;
  const int text = reading.rows.front().text;
  Json map = {{"name", names.at(text)},
              {"tokens", Json::array()},
              {"matched", Json::array()},
              {"stable", Json::array()}};
  for (const EadRow& row : reading.rows) {
    if (row.text != text || map["tokens"].size() == kShown) continue;
    map["tokens"].push_back(session.model().tokenizer
                                ? session.model().tokenizer->decode({&row.token, 1}, false)
                                : std::to_string(row.token));
    Json matched = Json::array();
    for (Token candidate : row.candidates) matched.push_back(candidate == row.token ? 1 : 0);
    map["matched"].push_back(matched);
    map["stable"].push_back(depths.depth(row.ready.stable));
  }
  return map;
}

Json picture_data(const Session& session, const std::string& model_name, const EadReading& reading,
                  const std::vector<std::string>& names) {
  const DepthSet& depths = session.model().depths;
  return {
      {"label", reading.name},
      {"model", model_name},
      {"num_layers", depths.num_layers()},
      {"depths", depths.depths()},
      {"first", column<int>(reading, [&](const EadRow& r) { return depths.depth(r.ready.first); })},
      {"stable",
       column<int>(reading, [&](const EadRow& r) { return depths.depth(r.ready.stable); })},
      {"map", map_of(session, reading, names)}};
}

std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string ead_table(const EadReading& reading, const DepthSet& depths) {
  const EadShares s = shares_of(reading, depths);
  std::string text = fmt::format("{}: {} generated tokens\n{:>6} {:>10} {:>13} {:>11} {:>17}\n",
                                 reading.name, reading.rows.size(), "depth", "agreement",
                                 "first match", "stable EAD", "stable, up to it");
  double cumulative = 0;
  for (int k = 0; k < depths.num_stages(); ++k) {
    const auto i = std::size_t(k);
    cumulative += s.stable[i];
    text +=
        fmt::format("{:>6} {:>9.1f}% {:>12.1f}% {:>10.1f}% {:>16.1f}%\n", depths.depth(k),
                    100 * s.agreement[i], 100 * s.first[i], 100 * s.stable[i], 100 * cumulative);
  }
  text += fmt::format(
      "mean first match {:.2f}, mean stable EAD {:.2f} of {} layers; {} {:.3f}; mean hop {:.3f}, "
      "with DECS {:.3f}\n",
      s.mean_first, s.mean_stable, depths.num_layers(),
      depths.num_stages() == depths.num_layers() ? "S_EAD" : "S_X", s.speedup, s.mean_hop,
      s.mean_hop_decs);
  text += fmt::format(
      "dex decode --expand full takes {} rounds for these {} texts: {:.3f} a token\n", s.rounds,
      s.texts, double(s.rounds) / double(std::max<std::size_t>(1, reading.rows.size())));
  return text;
}

void claim_ead_directory(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  if (!fs::exists(dir)) return;
  for (const char* file : kFiles) remove_temporaries(dir / file);
  bool ours = fs::is_directory(dir);
  if (ours && !fs::exists(dir / kSummary))
    for (const auto& entry : fs::directory_iterator(dir))
      ours = ours && std::find(std::begin(kFiles), std::end(kFiles), entry.path().filename()) !=
                         std::end(kFiles);
  require(ours, ExitCode::usage, "{}: holds something else than an EAD measurement", dir.string());
}

void write_ead(const std::filesystem::path& dir, const Session& session,
               const std::string& model_name, const std::vector<EadReading>& readings,
               const std::vector<std::string>& names) {
  require(!readings.front().rows.empty(), ExitCode::usage, "no prompt gave a token to measure");
  const DepthSet& depths = session.model().depths;
  claim_ead_directory(dir);
  make_directory(dir);
  std::filesystem::remove(dir / kSummary);
  write_table(dir / kTable, session, readings);
  write_file(dir / kPictures, text_of(picture_data(session, model_name, readings.back(), names)));
  Json summary = {{"format", "dex-ead-1"},
                  {"definition", kDefinition},
                  {"model", model_name},
                  {"model_fingerprint", session.model().fingerprint},
                  {"dtype", name_of(session.model().dtype)},
                  {kNumbersField, kNumbersVersion},
                  {"num_layers", depths.num_layers()},
                  {"depths", depths.depths()},
                  {"generated_tokens", readings.front().rows.size()},
                  {"texts", names.size()},
                  {"readings", Json::object()},
                  {"table_sha256", sha256_of_file(dir / kTable)}};
  for (const EadReading& reading : readings)
    summary["readings"][reading.name] = shares_json(reading, depths);
  write_file(dir / kSummary, text_of(summary));
}

std::string describe_ead(const std::filesystem::path& dir) {
  const auto path = dir / kSummary;
  const std::string place = path.string();
  const Json summary = read_json_object(path);
  const auto format = json_field<std::string>(summary, "format", place);
  require(format == "dex-ead-1", ExitCode::io, "{}: format is \"{}\", wanted \"dex-ead-1\"", place,
          format);
  const auto wanted = json_field<std::string>(summary, "table_sha256", place),
             seen = sha256_of_file(dir / kTable);
  require(seen == wanted, ExitCode::io, "{}: SHA-256 is {}, the summary wants {}",
          (dir / kTable).string(), seen, wanted);
  std::string text =
      fmt::format("EAD measurement of {}, {}: {} generated tokens of {} texts, depths {}\n\n",
                  json_field<std::string>(summary, "model", place),
                  json_field<std::string>(summary, "dtype", place),
                  json_field<std::int64_t>(summary, "generated_tokens", place),
                  json_field<std::int64_t>(summary, "texts", place),
                  json_field<Json>(summary, "depths", place).dump());
  const Json readings = json_field<Json>(summary, "readings", place);
  for (const auto& [name, s] : readings.items()) text += fmt::format("{}\n{}\n", name, s.dump(1));
  const H5Reader file(dir / kTable);
  text += "table:";
  for (const std::string& name : file.names()) text += " " + name;
  return text + "\n";
}

}  // namespace dex
