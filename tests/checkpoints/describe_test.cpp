#include "checkpoints/describe.h"

#include <catch2/catch.hpp>

#include "checkpoints/checkpoint.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/temp_dir.h"

using namespace dex;

TEST_CASE("adapters are described with depths, sizes and parameters") {
  const test::TempDir dir;
  const test::AdapterTensors a;
  write_adapter_file(dir / "a", a.config, a.stored);
  const std::string text = describe(dir / "a").value();
  CHECK(text.find("depths       1,3") != std::string::npos);
  CHECK(text.find("parameters   162") != std::string::npos);  // 2 x (4 x 16 + 4 x 4 + 1)
}

TEST_CASE("a checkpoint is described with its step, its files and its state") {
  const test::TempDir dir;
  save_checkpoint(dir / "c", 12, 1, [](const auto& temporary) {
    write_file(temporary / "state.json", "{\"seed\": 5}");
  });
  for (const auto& path : {dir / "c/step-12", dir / "c"}) {
    const std::string text = describe(path).value();
    CHECK(text.find("step 12") != std::string::npos);
    CHECK(text.find("state.json") != std::string::npos);
    CHECK(text.find("seed") != std::string::npos);
  }
}

TEST_CASE("a damaged checkpoint is an error, anything else is not described") {
  const test::TempDir dir;
  save_checkpoint(dir / "c", 12, 1,
                  [](const auto& temporary) { write_file(temporary / "x", "12345"); });
  write_file(dir / "c/step-12/x", "12346");
  CHECK_THROWS_AS(describe(dir / "c/step-12"), Error);
  CHECK(describe(dir / "c").value().find("passed over") != std::string::npos);
  CHECK_FALSE(describe(dir.path()));
}
