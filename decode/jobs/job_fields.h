// The fields of a job that are known, and the values they may have: those that are used, and those
// that cannot change greedy text. Whatever else is given refuses the job.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dex {

enum class JobKind { chat, completion };  // answers messages, continues a prompt

struct JobFields {
  std::vector<std::string_view> names;
  std::string_view wanted;  // values that are taken, in words; "anything": all
  std::string_view why;
  bool (*takes)(const nlohmann::json& value, JobKind kind);  // null is taken, too
};

// All of them; a name stands in one place.
std::span<const JobFields> job_fields();

// Error(usage) naming the first field of `body` that is unknown or has another value than wanted.
// null is as good as absent.
void check_job_fields(const nlohmann::json& body, JobKind kind);

// Rows of markdown, as decode/README.md shows them.
std::string job_field_table();

// A value for a message: short, whatever it is.
std::string shown(const nlohmann::json& value);

}  // namespace dex
