// Tells what a file is that cannot be what was asked for: a pointer left by git-lfs or Xet, a saved
// web page, another format. Broken downloads are nearly always one of these.
#pragma once
#include <string>
#include <string_view>

namespace dex {

// A clause such as "it is a git-lfs pointer, not the file itself: fetch it with git lfs pull", or
// "" when the bytes (a few hundred from the start of the file are enough) give no hint.
std::string foreign_file_hint(std::string_view start);

}  // namespace dex
