#include "common/base/version.h"

namespace dex {

std::string version() { return DEX_VERSION; }

std::string commit() { return DEX_COMMIT; }

}  // namespace dex
