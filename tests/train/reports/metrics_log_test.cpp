#include "train/reports/metrics_log.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "tests/support/temp_dir.h"

using namespace dex;

TEST_CASE("a log that goes on drops the lines of later steps and a torn end") {
  const test::TempDir dir;
  const auto path = dir.write("m.jsonl",
                              "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":3,"
                              "\"loss\":1}\n{\"step\":2,\"lo");
  MetricsLog(path, 2).write({{"step", 3}, {"loss", 0.5}});
  CHECK(read_file(path) ==
        "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"loss\":0.5,\"step\":3}\n");
}

TEST_CASE(
    "a log that goes on drops the evaluation that is made again, and no other line of its step") {
  const test::TempDir dir;
  const std::string first = "{\"evaluation\":{},\"step\":0}\n{\"loss\":3,\"step\":2}\n",
                    second = "{\"evaluation\":{},\"step\":2}\n";
  const auto path = dir.write("m.jsonl", first + second);
  {
    const MetricsLog log(path, 2);
  }
  CHECK(read_file(path) == first + second);
  {
    const MetricsLog log(path, 2, /*evaluates_again=*/true);
  }
  CHECK(read_file(path) == first);
}

TEST_CASE("a log that starts over is empty") {
  const test::TempDir dir;
  const auto path = dir.write("m.jsonl", "{\"step\":0}\n");
  const MetricsLog log(path, -1);
  CHECK(read_file(path).empty());
}

TEST_CASE("every number of a line becomes a scalar but its step") {
  const nlohmann::json line = {{"step", 3},
                               {"loss", 0.5},
                               {"bad", nullptr},
                               {"name", "x"},
                               {"by", {{"10", 1}, {"20", {2, 3}}}}};
  CHECK(scalars_of(line) == Scalars{{"by/10", 1}, {"by/20/0", 2}, {"by/20/1", 3}, {"loss", 0.5}});
}
