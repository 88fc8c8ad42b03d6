#include "common/base/adapter_tensors.h"

#include <catch2/catch.hpp>

using namespace dex::adapter_tensor;

TEST_CASE("the depth of an adapter's tensor is read from its name, and other names have none") {
  for (const int depth : {0, 7, 10, 2147483647}) CHECK(depth_of(name_at(depth, kUp)) == depth);
  for (const char* name :
       {"", "depth", "depth.", "depth.10", "depth..up", "depth.x.up", "depth.-1.up", "depth.+1.up",
        "depth. 1.up", "depth.1x.up", "depth.2147483648.up", "first.depth.10.up.weight",
        "model.depth.1.up", "Depth.1.up"}) {
    INFO(name);
    CHECK_FALSE(depth_of(name));
  }
}
