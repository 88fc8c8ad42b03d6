#include "common/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace dex {

void start_log(bool quiet) {
  auto logger = spdlog::stderr_color_mt("dex");
  logger->set_pattern("%H:%M:%S %^%l%$ %v");
  logger->set_level(quiet ? spdlog::level::warn : spdlog::level::info);
  spdlog::set_default_logger(logger);
}

}  // namespace dex
