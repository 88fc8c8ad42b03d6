#include "decode/ead/ead.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/h5.h"
#include "decode/ead/ead_files.h"
#include "kernels/numbers_version.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

EadRow row(std::vector<Token> candidates, Readiness ready) {
  return {.token = candidates.back(), .candidates = std::move(candidates), .ready = ready};
}

std::vector<std::string> names_in(const std::filesystem::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("shares follow from the paper's definitions") {
  const DepthSet depths({2, 4}, 8);
  const EadReading reading{"no adapters",
                           {row({5, 5, 5}, {0, 0, 0}), row({5, 1, 5}, {0, 2, 0}),
                            row({1, 5, 5}, {1, 1, 1}), row({1, 1, 5}, {2, 2, 2})}};
  const EadShares s = shares_of(reading, depths);
  CHECK(s.agreement == std::vector<double>{0.5, 0.5, 1.0});
  CHECK(s.first == std::vector<double>{0.5, 0.25, 0.25});
  CHECK(s.stable == std::vector<double>{0.25, 0.25, 0.5});
  CHECK(s.mean_first == Approx((2 + 2 + 4 + 8) / 4.0));
  CHECK(s.mean_stable == Approx((2 + 8 + 4 + 8) / 4.0));
  CHECK(s.speedup == Approx(8 * 4 / 22.0));  // eq. (13)
  CHECK(s.mean_hop == Approx((1 + 1 + 2 + 3) / 4.0));
}

TEST_CASE("a measurement is written whole, read back, and refused when altered") {
  const test::TempDir dir;
  const auto model = test::TinyModel{.layers = 4}.write(dir / "m");
  const Session session({.model = model, .depths = "1,2,3", .threads = 1});
  EadReader reader(session);
  const std::vector<Token> prompt{3, 1, 4};
  const DecodeResult plain =
      session.plain()->generate(prompt, {.max_tokens = 20, .ignore_stop = true}, {});
  reader.read(0, prompt, plain);
  write_ead(dir / "ead", session, "tiny", reader.readings(), {"only"});

  const H5Reader table(dir / "ead" / "ead.h5");
  CHECK(table.read_i32("token") == std::vector<std::int32_t>(plain.ids()));
  CHECK(table.shape("bare.candidates") == std::vector<std::uint64_t>{20, 4});
  const auto summary = nlohmann::json::parse(read_file(dir / "ead" / "summary.json"));
  CHECK(summary.at("readings").at("no adapters").contains("S_EAD"));
  CHECK(summary.at("numbers_version") == kNumbersVersion);
  CHECK_THAT(describe_ead(dir / "ead"), Catch::Contains("20 generated tokens"));

  dir.write("full/precious.txt", "mine");
  CHECK_THROWS_WITH(write_ead(dir / "full", session, "tiny", reader.readings(), {"only"}),
                    Catch::Contains("something else"));
  // a measurement may be replaced
  write_ead(dir / "ead", session, "tiny", reader.readings(), {"only"});

  // What runs leave that are killed while they write: temporaries, or files without the summary
  // that comes last.
  dir.write("cut/ead.h5", "old");
  for (const char* file : {"ead.h5.tmp-77", "ead.json.tmp-77", "summary.json.tmp-8"})
    for (const char* place : {"new/", "cut/", "ead/"}) dir.write(std::string(place) + file, "half");
  for (const char* place : {"new", "cut", "ead"}) {
    write_ead(dir / place, session, "tiny", reader.readings(), {"only"});
    CHECK(names_in(dir / place) == std::vector<std::string>{"ead.h5", "ead.json", "summary.json"});
  }
  dir.write("full/ead.h5", "old");
  CHECK_THROWS_WITH(claim_ead_directory(dir / "full"), Catch::Contains("something else"));
  CHECK_THROWS_WITH(claim_ead_directory(dir / "full" / "precious.txt"),
                    Catch::Contains("something else"));
  CHECK(names_in(dir / "full") == std::vector<std::string>{"ead.h5", "precious.txt"});

  auto bytes = read_file(dir / "ead" / "ead.h5");
  bytes[bytes.size() / 2] = char(bytes[bytes.size() / 2] ^ 1);
  write_file(dir / "ead" / "ead.h5", bytes);
  CHECK_THROWS_WITH(describe_ead(dir / "ead"), Catch::Contains("SHA-256"));
}

TEST_CASE("another text than decoding's is noticed") {
  const test::TempDir dir;
  const Session session({.model = test::TinyModel{}.write(dir / "m"), .depths = "2", .threads = 1});
  const std::vector<Token> prompt{3, 1, 4};
  DecodeResult plain =
      session.plain()->generate(prompt, {.max_tokens = 5, .ignore_stop = true}, {});
  plain.tokens[2].hash ^= 1;
  EadReader reader(session);
  CHECK_THROWS_WITH(reader.read(0, prompt, plain), Catch::Contains("position 4"));
}

}  // namespace dex
