// JSON files of a model directory, read strictly.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace dex {

// A JSON object. A key that stands twice in one object is refused: readers disagree on which one
// counts. Error(io) says what is wrong and where, with a hint when the bytes are no JSON file at
// all. `place` names them in messages.
nlohmann::json parse_json_object(std::string_view bytes, const std::string& place);

// Throws Error(usage) when the file is missing.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace dex
