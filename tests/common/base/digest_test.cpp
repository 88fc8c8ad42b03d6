#include "common/base/digest.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using dex::Sha256;

TEST_CASE("SHA-256 gives the known answers of its standard") {
  CHECK(dex::sha256_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(dex::sha256_of("abc") ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(dex::sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(dex::sha256_of(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("the digest does not depend on how the bytes are cut") {
  const std::string text(1000, 'a');
  for (const std::size_t piece : {1, 7, 64, 999}) {
    Sha256 digest;
    for (std::size_t i = 0; i < text.size(); i += piece)
      digest.add(std::string_view(text).substr(i, piece));
    CHECK(digest.hex() == dex::sha256_of(text));
  }
}

TEST_CASE("the digest of a file is that of its bytes, over its buffer's size too") {
  const dex::test::TempDir dir;
  const std::string zero("a\0b\n", 4), large(3'000'001, 'x');
  CHECK(dex::sha256_of_file(dir.write("zero", zero)) == dex::sha256_of(zero));
  CHECK(dex::sha256_of_file(dir.write("large", large)) == dex::sha256_of(large));
  CHECK(dex::sha256_of_file(dir.write("empty", "")) == dex::sha256_of(""));
  dex::test::check_refused(dex::ExitCode::io, {"absent", "No such file"},
                           [&] { dex::sha256_of_file(dir / "absent"); });
  dex::test::check_refused(dex::ExitCode::io, {"directory"},
                           [&] { dex::sha256_of_file(dir.path()); });
}
