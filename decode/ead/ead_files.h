// What `dex ead` leaves in its directory: ead.h5 (the table), summary.json, ead.json (what the
// pictures are drawn from).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "decode/ead/ead.h"

namespace dex {

// aligned text, a line per depth
std::string ead_table(const EadReading& reading, const DepthSet& depths);

// Removes the temporaries of killed runs. Error(usage) when `dir` holds something else than a
// measurement, whole or cut short.
void claim_ead_directory(const std::filesystem::path& dir);

// `names` are the prompts' names by text. The summary is written last: a directory that holds one
// is whole.
void write_ead(const std::filesystem::path& dir, const Session& session,
               const std::string& model_name, const std::vector<EadReading>& readings,
               const std::vector<std::string>& names);

std::string describe_ead(const std::filesystem::path& dir);  // for dex inspect

}  // namespace dex
