#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/support/temp_dir.h"

namespace {

// What programs keep in their user's cache goes with the tests that ran them.
struct OwnCache {
  OwnCache() { setenv("XDG_CACHE_HOME", dir.path().c_str(), 1); }
  dex::test::TempDir dir;
} own_cache;

}  // namespace
