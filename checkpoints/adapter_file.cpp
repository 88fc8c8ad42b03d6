#include "checkpoints/adapter_file.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/base/adapter_tensors.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/finite.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"
#include "common/base/log.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "dex-adapter-3";
constexpr const char* kSecondFormat = "dex-adapter-2";  // without model_tensors
constexpr const char* kFirstFormat = "dex-adapter-1";   // without config_sha256 as well
constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kModelName = "adapter_model.safetensors";

std::string digest_of(const std::map<std::string, StoredTensor>& tensors) {
  Sha256 digest;
  for (const auto& [name, tensor] : tensors) {
    digest.add(fmt::format("{} {} {}\n", name, name_of(tensor.type), fmt::join(tensor.shape, " ")));
    digest.add(tensor.bytes);
  }
  return digest.hex();
}

// Of the config's fields but itself, as compact JSON with sorted keys.
std::string config_digest(json object) {
  object.erase("config_sha256");
  return sha256_of(object.dump());
}

json to_json(const AdapterConfig& config, const std::string& digest) {
  json object = {{"format", kFormat},
                 {"depths", config.depths},
                 {"hidden_size", config.hidden_size},
                 {"width", config.width},
                 {"activation", config.activation},
                 {"dtype", config.dtype},
                 {"model_fingerprint", config.model_fingerprint},
                 {"data_digest", config.data_digest},
                 {"tau", config.tau},
                 {"model_tensors", config.model_tensors},
                 {"tensors_sha256", digest}};
  object["config_sha256"] = config_digest(object);
  return object;
}

void check_format(const json& object, const std::string& place) {
  const auto format = json_field<std::string>(object, "format", place);
  if (format == kFirstFormat && !object.contains("config_sha256")) return;
  require(format == kFormat || format == kSecondFormat, ExitCode::io,
          "{}: format is \"{}\", wanted \"{}\"", place, format, kFormat);
  const auto wanted = json_field<std::string>(object, "config_sha256", place);
  const std::string seen = config_digest(object);
  require(seen == wanted, ExitCode::io, "{}: altered: its digest is {}, it says {}", place, seen,
          wanted);
}

AdapterConfig config_of(const json& object, const std::string& place) {
  AdapterConfig config;
  config.depths = json_field<std::vector<int>>(object, "depths", place);
  config.hidden_size = json_field<std::int64_t>(object, "hidden_size", place);
  config.width = json_field<std::int64_t>(object, "width", place);
  config.activation = json_field<std::string>(object, "activation", place);
  config.dtype = json_field<std::string>(object, "dtype", place);
  config.model_fingerprint = json_field<std::string>(object, "model_fingerprint", place);
  config.data_digest = json_field<std::string>(object, "data_digest", place);
  config.tau = json_field<double>(object, "tau", place);
  if (object.at("format") == kFormat)
    config.model_tensors =
        json_field<std::map<std::string, std::string>>(object, "model_tensors", place);
  return config;
}

void check_config(const AdapterConfig& config, const std::string& place) {
  constexpr std::int64_t kLargest = 1 << 24;
  require(!config.depths.empty(), ExitCode::io, "{}: depths is empty", place);
  for (std::size_t i = 0; i < config.depths.size(); ++i)
    require(config.depths[i] >= 1 && (i == 0 || config.depths[i] > config.depths[i - 1]),
            ExitCode::io, "{}: depths is [{}], wanted increasing layer counts from 1", place,
            fmt::join(config.depths, ", "));
  require(config.hidden_size > 0 && config.hidden_size < kLargest && config.width > 0 &&
              config.width < kLargest,
          ExitCode::io, "{}: hidden_size {} and width {} are no sizes", place, config.hidden_size,
          config.width);
  require(config.activation == "silu", ExitCode::io, "{}: activation is \"{}\", wanted \"silu\"",
          place, config.activation);
  require(config.dtype == "f32", ExitCode::io, "{}: dtype is \"{}\", wanted \"f32\"", place,
          config.dtype);
}

void check_tensors(const AdapterConfig& config, const std::map<std::string, StoredTensor>& tensors,
                   const std::string& place) {
  const auto wanted = adapter_tensors(config);
  for (const auto& [name, shape] : wanted) {
    const auto found = tensors.find(name);
    require(found != tensors.end(), ExitCode::io, "{}: the tensor {} is missing", place, name);
    const StoredTensor& tensor = found->second;
    require(tensor.shape == shape, ExitCode::io, "{}: the tensor {} has shape [{}], {} wants [{}]",
            place, name, fmt::join(tensor.shape, ", "), kConfigName, fmt::join(shape, ", "));
    require(tensor.type == StoredType::f32, ExitCode::io,
            "{}: the tensor {} has type {}, wanted F32", place, name, name_of(tensor.type));
    require(all_finite(tensor), ExitCode::io, "{}: the tensor {} holds NaN or infinity", place,
            name);
  }
  for (const auto& [name, tensor] : tensors)
    require(wanted.contains(name), ExitCode::io, "{}: the tensor {} belongs to no adapter of {}",
            place, name, kConfigName);
}

}  // namespace

std::map<std::string, std::vector<std::int64_t>> adapter_tensors(const AdapterConfig& config) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const int depth : config.depths)
    for (const auto& [name, shape] : adapter_tensor::shapes(config.hidden_size, config.width))
      shapes[adapter_tensor::name_at(depth, name)] = shape;
  return shapes;
}

void write_adapter_file(const fs::path& dir, const AdapterConfig& config,
                        const std::map<std::string, StoredTensor>& tensors) {
  check_config(config, dir.string());
  check_tensors(config, tensors, dir.string());
  make_directory(dir);
  for (const char* name : {kModelName, kConfigName}) remove_temporaries(dir / name);
  const std::string digest = digest_of(tensors);
  write_safetensors(dir / kModelName, tensors, {{"format", kFormat}, {"tensors_sha256", digest}});
  write_file(dir / kConfigName, to_json(config, digest).dump(2) + "\n");
}

AdapterFile read_adapter_file(const fs::path& dir) {
  require(fs::is_directory(dir), ExitCode::usage, "{}: no such directory of adapters",
          dir.string());
  const std::string config_place = (dir / kConfigName).string(),
                    model_place = (dir / kModelName).string();
  const json object = read_json_object(dir / kConfigName);
  check_format(object, config_place);
  AdapterConfig config = config_of(object, config_place);
  check_config(config, config_place);
  WeightFile weights = WeightFile::open(dir / kModelName);
  check_tensors(config, weights.tensors(), model_place);
  const auto wanted = json_field<std::string>(object, "tensors_sha256", config_place);
  const std::string seen = digest_of(weights.tensors());
  require(seen == wanted, ExitCode::io, "{}: the tensors have digest {}, {} wants {}", model_place,
          seen, kConfigName, wanted);
  return {std::move(config), std::move(weights)};
}

void AdapterFile::require_model(const std::string& fingerprint,
                                const std::map<std::string, std::string>& digests) const {
  require(config.model_fingerprint == fingerprint, ExitCode::usage,
          "{}: these adapters belong to the model with fingerprint {}, this one has {}",
          weights.origin(), config.model_fingerprint, fingerprint);
  if (config.model_tensors.empty()) {
    spdlog::warn(
        "{}: of a form that knows only the ends of the model's tensors, so a change between them "
        "is not seen; dex inspect --rewrite DIR --model MODEL gives it the form of today",
        weights.origin());
    return;
  }
  for (const auto& [name, digest] : digests) {
    const auto known = config.model_tensors.find(name);
    const std::string wanted = known == config.model_tensors.end() ? "none" : known->second;
    require(digest == wanted, ExitCode::usage,
            "{}: these adapters belong to the model whose {} has SHA-256 {}, this one's has {}",
            weights.origin(), name, wanted, digest);
  }
}

AdapterFile read_adapter_file(const fs::path& dir, const std::string& model_fingerprint,
                              const std::map<std::string, std::string>& model_digests) {
  AdapterFile file = read_adapter_file(dir);
  file.require_model(model_fingerprint, model_digests);
  return file;
}

}  // namespace dex
