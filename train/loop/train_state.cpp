#include "train/loop/train_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "checkpoints/checkpoint.h"
#include "common/base/adapter_tensors.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_differences.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/model/tensors.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

constexpr std::string_view kFirst = "first.", kSecond = "second.";

void require_finite(const Tensors& tensors, std::int64_t step) {
  for (const auto& [name, tensor] : tensors)
    require(
        at::isfinite(tensor).all().item<bool>(), ExitCode::usage,
        "step {}: {} holds NaN or infinity and is not saved; a lower --lr or --dtype f32 may help",
        step, name);
}

// Moments have "first." or "second." before the name that weights have.
std::optional<int> depth_of(std::string_view name) {
  for (const std::string_view moment : {kFirst, kSecond})
    if (name.starts_with(moment)) name.remove_prefix(moment.size());
  return adapter_tensor::depth_of(name);
}

bool of_other_rank(const std::string& name, const std::vector<int>& depths,
                   const std::vector<int>& own) {
  const auto depth = depth_of(name);
  const auto has = [&](const std::vector<int>& list) {
    return std::find(list.begin(), list.end(), *depth) != list.end();
  };
  return depth && has(depths) && !has(own);
}

// Strict: the same names and shapes, float32.
void read_into(const fs::path& path, const Tensors& tensors, const std::vector<int>& depths,
               const std::vector<int>& own) {
  const WeightFile file = WeightFile::open(path);
  for (const auto& [name, stored] : file.tensors())
    require(tensors.contains(name) || of_other_rank(name, depths, own), ExitCode::io,
            "{}: the tensor {} belongs to no adapter of this run", path.string(), name);
  for (const auto& [name, tensor] : tensors) {
    const StoredTensor& stored = file.at(name);
    require(stored.type == StoredType::f32 && stored.shape == tensor.sizes().vec(), ExitCode::io,
            "{}: the tensor {} is {} [{}], wanted F32 [{}]", path.string(), name,
            name_of(stored.type), fmt::join(stored.shape, ", "), fmt::join(tensor.sizes(), ", "));
    tensor.copy_(view_of(stored));
  }
}

void require_same_run(const json& seen, json wanted, const fs::path& checkpoint) {
  require_same_numbers(seen, checkpoint.string(),
                       "--restart starts the run anew, another --out leaves this one as it is");
  constexpr const char* kDigest = "model_digest";
  if (!seen.contains(kDigest) && wanted.contains(kDigest)) {
    spdlog::warn(
        "{}: of a form that knows only the ends of the model's tensors, so a change between them "
        "is not seen; the next checkpoint has the form of today, and dex inspect --rewrite gives "
        "it to adapters",
        checkpoint.string());
    wanted.erase(kDigest);
  }
  const std::string differences = json_differences(seen, wanted, "{} was {}, now {}");
  require(differences.empty(), ExitCode::usage, "{}: --resume goes on with the same run only: {}",
          checkpoint.string(), differences);
}

}  // namespace

Tensors named_weights(const std::vector<int>& depths, const std::vector<AdapterWeights>& weights) {
  Tensors all;
  for (std::size_t k = 0; k < weights.size(); ++k)
    for (const auto& [name, tensor] : weights[k].named())
      all[adapter_tensor::name_at(depths[k], name)] = tensor;
  return all;
}

std::map<std::string, StoredTensor> stored_views(const Tensors& tensors) {
  std::map<std::string, StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) stored[name] = stored_view(tensor);
  return stored;
}

void save_state(const fs::path& root, int keep, const TrainState& state, const json& identity,
                const std::vector<int>& depths, const TrainTensors& tensors,
                std::int64_t optimizer_steps, std::optional<std::int64_t> spared) {
  const Tensors named = named_weights(depths, tensors.weights);
  Tensors moments;
  for (const auto& [name, tensor] : named_weights(depths, tensors.first))
    moments[std::string(kFirst) + name] = tensor;
  for (const auto& [name, tensor] : named_weights(depths, tensors.second))
    moments[std::string(kSecond) + name] = tensor;
  require_finite(named, state.step);
  require_finite(moments, state.step);
  const json about = {{"step", state.step},
                      {"optimizer_steps", optimizer_steps},
                      {"tokens", state.tokens},
                      {"evaluation", state.evaluation},
                      {"run", identity},
                      {"skipped", state.skipped},
                      {"skipped_in_row", state.skipped_in_row}};
  save_checkpoint(
      root, state.step, keep,
      [&](const fs::path& dir) {
        write_safetensors(dir / "weights.safetensors", stored_views(named), {});
        write_safetensors(dir / "moments.safetensors", stored_views(moments), {});
        write_file(dir / "state.json", about.dump(2) + "\n");
      },
      spared);
}

TrainState load_state(const fs::path& checkpoint, const json& identity,
                      const std::vector<int>& depths, const std::vector<int>& own,
                      std::vector<AdapterWeights>& weights, AdamW& optimizer) {
  const std::string place = (checkpoint / "state.json").string();
  const json about = read_json_object(checkpoint / "state.json");
  require_same_run(json_field<json>(about, "run", place), identity, checkpoint);
  read_into(checkpoint / "weights.safetensors", named_weights(own, weights), depths, own);
  read_into(checkpoint / "moments.safetensors", optimizer.moments(), depths, own);
  optimizer.set_steps(json_field<std::int64_t>(about, "optimizer_steps", place));
  return {.step = json_field<std::int64_t>(about, "step", place),
          .tokens = json_field<std::int64_t>(about, "tokens", place),
          .skipped = about.value("skipped", std::int64_t{0}),
          .skipped_in_row = about.value("skipped_in_row", std::int64_t{0}),
          .evaluation = json_field<json>(about, "evaluation", place)};
}

}  // namespace dex
