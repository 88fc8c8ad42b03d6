// Of a build without CUDA.
#include <catch2/catch.hpp>

#include "common/comm/c10d_transport.h"
#include "common/comm/gpu_link.h"
#include "tests/common/comm/two_ranks.h"
#include "tests/support/errors.h"

using namespace dex;

TEST_CASE("a program without CUDA connects no GPUs") {
  test::TwoRanks ranks;
  test::check_refused(ExitCode::usage, {"without CUDA"},
                      [&] { ranks.first->connect_gpus(at::kCPU, {1}); });
}
