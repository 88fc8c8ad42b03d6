// What `dex inspect` found out about a path: the same facts as aligned text and as JSON.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace dex {

struct Inspection {
  std::string text;      // lines for people, ending with a newline
  nlohmann::json facts;  // "kind" is always there
  ExitCode code =
      ExitCode::done;  // io: read, but would not be accepted; bad_rows: some lines of it would not
};

// Names what the path is, then looks into it. Error(usage) when the path is missing or nothing that
// this program reads, Error(io) when it is cut or altered.
Inspection inspect(const std::filesystem::path& path);

// The kinds that inspect() tells apart and no other module describes.
// a model directory or a config.json
Inspection inspect_model(const std::filesystem::path& path);
Inspection inspect_run(const std::filesystem::path& dir);       // what dex train left or is writing
Inspection inspect_weights(const std::filesystem::path& path);  // a safetensors file or index
Inspection inspect_jsonl(const std::filesystem::path& path);
Inspection inspect_hdf5(const std::filesystem::path& path);

// Layout that they share.
using Rows = std::vector<std::vector<std::string>>;
// aligned, the first two columns to the left and numbers to the right
std::string columns(const Rows& rows);
std::string grouped(std::uint64_t number);    // 134,515,008
std::string bytes_text(std::uint64_t bytes);  // "256.6 MiB"

}  // namespace dex
