#include "checkpoints/describe.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/base/adapter_tensors.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

double root_mean_square(const StoredTensor& tensor) {
  double sum = 0;
  const std::size_t count = tensor.bytes.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof value);
    sum += double{value} * value;
  }
  return count == 0 ? 0 : std::sqrt(sum / double(count));
}

std::int64_t elements(const WeightFile& weights) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : weights.tensors())
    count += std::int64_t(tensor.bytes.size() / size_of(tensor.type));
  return count;
}

std::string describe_adapters(const fs::path& dir) {
  using namespace adapter_tensor;
  const AdapterFile file = read_adapter_file(dir);
  const AdapterConfig& c = file.config;
  std::string text = fmt::format("adapters {}\n", dir.string());
  text += fmt::format(
      "  depths       {}\n  hidden size  {}\n  width        {}\n  activation   {}\n  stored as    "
      "{}\n",
      fmt::join(c.depths, ","), c.hidden_size, c.width, c.activation, c.dtype);
  text += fmt::format(
      "  tau          {}\n  model        {}\n  data         {}\n  parameters   {}\n", c.tau,
      c.model_fingerprint, c.data_digest.empty() ? "-" : c.data_digest, elements(file.weights));
  text += fmt::format("  tensors      {}\n",
                      c.model_tensors.empty()
                          ? "none of the model's is known whole: --rewrite DIR --model MODEL"
                          : fmt::format("{} of the model, known whole", c.model_tensors.size()));
  text += fmt::format("  {:>5}  {:>12}  {:>12}  {:>12}  {:>12}\n", "depth", "alpha", "rms norm",
                      "rms up", "rms down");
  for (int depth : c.depths) {
    const auto size = [&](const char* name) {
      return root_mean_square(file.weights.at(name_at(depth, name)));
    };
    float alpha;
    std::memcpy(&alpha, file.weights.at(name_at(depth, kAlpha)).bytes.data(), sizeof alpha);
    text += fmt::format("  {:>5}  {:>12.6g}  {:>12.6g}  {:>12.6g}  {:>12.6g}\n", depth, alpha,
                        size(kNorm), size(kUp), size(kDown));
  }
  return text;
}

std::string describe_checkpoint(const fs::path& dir) {
  verify_checkpoint(dir);
  const json manifest = read_json_object(dir / "MANIFEST.json");
  std::string text =
      fmt::format("checkpoint {} (whole)\n  step {}\n", dir.string(), manifest["step"].dump());
  for (const auto& [name, entry] : manifest["files"].items())
    text += fmt::format("  {:<24} {:>12} bytes  sha256 {}\n", name, entry["size"].dump(),
                        entry["sha256"].get<std::string>());
  if (!fs::exists(dir / "state.json")) return text;
  const json state = read_json_object(dir / "state.json");
  for (const auto& [key, value] : state.items())
    text += fmt::format("  {:<24} {}\n", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

std::string describe_search(const fs::path& root, const CheckpointSearch& search) {
  std::string text;
  for (const std::string& reason : search.passed_over)
    text += fmt::format("passed over: {}\n", reason);
  if (!search.step) return text + fmt::format("{}: no whole checkpoint\n", root.string());
  return text + describe_checkpoint(search.dir);
}

}  // namespace

std::optional<std::string> describe(const fs::path& path) {
  std::string text;
  if (fs::exists(path / "adapter_config.json")) text += describe_adapters(path);
  if (fs::exists(path / "MANIFEST.json")) text += describe_checkpoint(path);
  const CheckpointSearch search = newest_checkpoint(path);
  if (search.step || !search.passed_over.empty()) text += describe_search(path, search);
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace dex
