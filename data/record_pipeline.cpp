#include "data/record_pipeline.h"

#include <cctype>
#include <fstream>

#include "common/base/error.h"
#include "common/base/log.h"

namespace dex {

void judge_cut(const SharegptReader& reader, const PrepareOptions& options) {
  if (!reader.cut()) return;
  const Cut& cut = *reader.cut();
  const std::string what = fmt::format(
      "{}: cut: the file ends at byte {} before its array or last line does, inside or before "
      "record {} "
      "(counting from 0) "
      "at byte {}",
      options.data.string(), cut.end, cut.record, cut.record_offset);
  require(options.allow_truncated, ExitCode::io, "{}; --allow-truncated takes the {} whole records",
          what, cut.record);
  require(cut.record > 0, ExitCode::io, "{}; no whole record", what);
  spdlog::warn("{}; the {} whole records are taken", what, cut.record);
}

void refuse_cut_file(const PrepareOptions& options) {
  if (options.allow_truncated || options.limit) return;
  std::ifstream file(options.data, std::ios::binary | std::ios::ate);
  char last = ' ';
  for (auto at = std::int64_t(file.tellg()) - 1;
       at >= 0 && std::isspace(static_cast<unsigned char>(last)); --at)
    file.seekg(at).get(last);
  if (last == ']') return;
  SharegptReader reader(options.data);
  while (reader.next()) continue;
  judge_cut(reader, options);
}

}  // namespace dex
