// One line per event on stderr. Results go to stdout, and only from launch/.
#pragma once
#include <spdlog/spdlog.h>

namespace dex {

// Call once from main. Quiet keeps warnings and errors only.
void start_log(bool quiet);
inline bool is_quiet() { return !spdlog::should_log(spdlog::level::info); }

}  // namespace dex
