#include "common/base/tensor_digests.h"

#include <catch2/catch.hpp>

#include "common/base/digest.h"
#include "common/base/safetensors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_faults.h"

using namespace dex;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("digests of many tensors are those of their bytes, on any number of threads") {
  std::map<std::string, std::string> texts{{"none", ""}};
  for (int i = 0; i < 200; ++i)
    texts["t" + std::to_string(i)] = std::string(std::size_t(i) * 997, char('a' + i % 26));
  for (const int threads : {1, 2, 4}) {
    TensorDigests digests(threads);
    CHECK(digests.finish().empty());
    for (const auto& [name, text] : texts) digests.add(name, bytes_of(text));
    digests.add("t3", bytes_of(texts.at("t4")));  // was added before
    const auto taken = digests.finish();
    REQUIRE(taken.size() == texts.size());
    for (const auto& [name, text] : texts) CHECK(taken.at(name) == sha256_of(text));
    const std::string more = "more";
    digests.add("later", bytes_of(more));
    CHECK(digests.finish().at("later") == sha256_of(more));
  }
  // as sha256sum prints it
  CHECK(sha256_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("digests whose threads cannot be had end with an error") {
  for (const int given : {0, 1, 3}) {
    test::give_threads(given);
    CHECK_THROWS_WITH(TensorDigests(4), Catch::Contains("digests of tensors"));
  }
  test::give_threads(-1);
}

TEST_CASE("digests that nobody waits for are given up") {
  const std::string text(1 << 20, 'x');
  TensorDigests digests(2);
  for (int i = 0; i < 100; ++i) digests.add(std::to_string(i), bytes_of(text));
}

TEST_CASE("a weight file takes the digests of the tensors that were asked for") {
  const test::TempDir dir;
  const std::string a = "12345678", b = "abcd";
  write_safetensors(dir / "w.safetensors",
                    {{"a", {StoredType::f32, {2}, bytes_of(a)}},
                     {"b", {StoredType::u8, {4}, bytes_of(b)}},
                     {"c", {StoredType::u8, {4}, bytes_of(b)}}},
                    {});
  WeightFile file = WeightFile::open(dir / "w.safetensors");
  file.at("c");  // before: not taken
  file.take_digests();
  CHECK(file.digests().empty());
  file.at("b");
  file.at("a");
  file.at("b");
  CHECK(file.digests() ==
        std::map<std::string, std::string>{{"a", sha256_of(a)}, {"b", sha256_of(b)}});
}
