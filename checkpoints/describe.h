// What `dex inspect` prints about adapters and checkpoints.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace dex {

// Text of several lines, ending with a newline; nothing when `path` is neither a directory of
// adapters nor a checkpoint (nor a directory of checkpoints). Damaged ones are an Error, as when
// they are read.
std::optional<std::string> describe(const std::filesystem::path& path);

}  // namespace dex
