// A training run: what it was asked for, how far it came, how well its exits answer, and what of it
// can be used.
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/base/error.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"
#include "common/base/mapped_file.h"
#include "launch/inspect/inspection.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string value_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string number_text(const json& object, const char* key, int decimals) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number()
             ? fmt::format("{:.{}f}", found->get<double>(), decimals)
             : "-";
}

// The lines of metrics.jsonl that are whole; a run that is going on may be writing the last one.
std::vector<json> metrics_of(const fs::path& path) {
  std::vector<json> lines;
  if (!fs::exists(path)) return lines;
  const MappedFile file(path);
  for (std::string_view rest = file.text(); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    json value = json::parse(line.begin(), line.end(), nullptr, false);
    if (value.is_object() && value.contains("step")) lines.push_back(std::move(value));
  }
  return lines;
}

class RunReport {
 public:
  explicit RunReport(const fs::path& dir) : dir_(dir), metrics_(metrics_of(dir / "metrics.jsonl")) {
    add_checkpoints();
    add_options();
    add_steps();
    add_evaluations();
    text_ += checkpoints_text_;
    add_adapters("adapters", dir_, "none yet: they are written when the last step is done");
    add_adapters("best", dir_ / "best", "none: nothing was evaluated");
  }
  Inspection result() && {
    return {std::move(text_), std::move(facts_), sound_ ? ExitCode::done : ExitCode::io};
  }

 private:
  void add_checkpoints() {
    Rows rows;
    for (const auto& [step, path] : checkpoints_in(dir_ / "checkpoints")) {
      std::string state = "whole";
      try {
        verify_checkpoint(path);
        newest_ = path;
      } catch (const std::exception& error) {
        state = fmt::format("DAMAGED: {}", error.what());
        sound_ = false;
      }
      rows.push_back({path.filename().string(), state});
      facts_["checkpoints"][path.filename().string()] = state;
    }
    checkpoints_text_ = "checkpoints\n" + (rows.empty() ? "  none\n" : columns(rows));
  }

  void add_options() {
    Rows rows;
    if (newest_ && fs::exists(*newest_ / "state.json")) {
      state_ = read_json_object(*newest_ / "state.json");
      facts_["options"] = state_.value("run", json::object());
      for (const auto& [key, value] : facts_["options"].items())
        rows.push_back({key, value_text(value)});
    }
    text_ += fmt::format("training run {}\noptions\n{}", dir_.string(),
                         rows.empty() ? "  not known: no whole checkpoint\n" : columns(rows));
  }

  void add_steps() {
    std::vector<const json*> steps;
    for (const json& line : metrics_)
      if (line.contains("loss")) steps.push_back(&line);
    facts_["saved_step"] = state_.value("step", json());
    Rows rows{{"saved step", state_.contains("step") ? state_["step"].dump() : "none"}};
    if (state_.value("skipped", 0) > 0) rows.push_back({"skipped steps", state_["skipped"].dump()});
    text_ += "progress\n" + columns(rows);
    if (steps.empty()) return;
    Rows table{{"", "step", "loss"}};
    std::vector<std::string> depths;
    if (const auto by_depth = steps.front()->find("loss_by_depth");
        by_depth != steps.front()->end())
      for (const auto& [depth, loss] : by_depth->items()) depths.push_back(depth);
    std::sort(depths.begin(), depths.end(),
              [](const auto& a, const auto& b) { return std::stoi(a) < std::stoi(b); });
    for (const std::string& depth : depths)
      table.front().insert(table.front().end(), {"loss @" + depth, "agree @" + depth});
    for (const char* column : {"rate", "tokens/s", "MFU"}) table.front().push_back(column);
    for (const auto& [name, line] :
         {std::pair("first", steps.front()), std::pair("last", steps.back())}) {
      facts_[name] = *line;
      table.push_back({name, (*line)["step"].dump(), number_text(*line, "loss", 4)});
      for (const std::string& depth : depths)
        table.back().insert(
            table.back().end(),
            {number_text(line->value("loss_by_depth", json::object()), depth.c_str(), 4),
             number_text(line->value("agreement", json::object()), depth.c_str(), 4)});
      const json rate = line->value("learning_rate", json());
      table.back().insert(
          table.back().end(),
          {rate.is_number() ? fmt::format("{:.3g}", rate.get<double>()) : "-",
           number_text(*line, "tokens_per_second", 0), number_text(*line, "mfu", 3)});
    }
    text_ += "steps\n" + columns(table);
  }

  void add_evaluations() {
    Rows table{{"step", "exits", "agreement by depth", "stable EAD", "S_X", "hops", "DECS hops",
                "rounds/token"}};
    facts_["evaluations"] = json::array();
    for (const json& line : metrics_)
      if (const auto sets = line.find("evaluation"); sets != line.end() && sets->is_object())
        for (const auto& [name, s] : sets->items()) {
          std::vector<std::string> agreement;
          for (const json& share : s.value("agreement", json::array()))
            agreement.push_back(fmt::format("{:.4f}", share.get<double>()));
          table.push_back({line["step"].dump(), name, fmt::format("{}", fmt::join(agreement, " ")),
                           number_text(s, "stable_ead", 2), number_text(s, "s_x", 3),
                           number_text(s, "hops", 4), number_text(s, "decs_hops", 4),
                           number_text(s, "rounds_per_token", 4)});
          facts_["evaluations"].push_back({{"step", line["step"]}, {"exits", name}, {"scores", s}});
        }
    text_ += "evaluations on held-out text\n" + (table.size() > 1 ? columns(table) : "  none\n");
  }

  void add_adapters(const char* kind, const fs::path& dir, const char* absent) {
    Rows rows;
    if (!fs::exists(dir / "adapter_config.json")) {
      rows.push_back({absent});
    } else {
      try {
        const AdapterFile file = read_adapter_file(dir);
        rows.push_back({"whole", fmt::format("{}, depths {}", dir.string(),
                                             fmt::join(file.config.depths, ","))});
        facts_[kind] = {{"path", dir.string()}, {"depths", file.config.depths}};
        if (fs::exists(dir / "best.json")) {
          const json record = read_json_object(dir / "best.json");
          facts_[kind]["step"] =
              json_field<std::int64_t>(record, "step", (dir / "best.json").string());
          rows.push_back(
              {"step",
               fmt::format("{}, {} DECS hops on held-out text", facts_[kind]["step"].dump(),
                           number_text(record.value("scores", json::object()), "decs_hops", 4))});
        }
      } catch (const std::exception& error) {
        rows.push_back({"DAMAGED", error.what()});
        sound_ = false;
      }
    }
    text_ += fmt::format("{}\n{}", kind, columns(rows));
  }

  fs::path dir_;
  std::vector<json> metrics_;
  std::optional<fs::path> newest_;  // whole checkpoint
  json state_ = json::object();
  std::string text_, checkpoints_text_;
  json facts_ = {{"kind", "run"}, {"options", json::object()}, {"checkpoints", json::object()}};
  bool sound_ = true;
};

}  // namespace

Inspection inspect_run(const fs::path& dir) { return RunReport(dir).result(); }

}  // namespace dex
