#include "common/text/nfc.h"

#include <catch2/catch.hpp>

namespace {

std::string nfc(std::string_view text) {
  std::string made;
  return std::string(dex::to_nfc(text, made));
}

}  // namespace

TEST_CASE("letters and marks are composed wherever they stand") {
  CHECK(nfc("plain") == "plain");
  CHECK(nfc("cafe\xCC\x81") == "caf\xC3\xA9");
  CHECK(nfc("e\xCC\x81t e\xCC\x81") == "\xC3\xA9t \xC3\xA9");
  CHECK(nfc("\xCC\x81") == "\xCC\x81");  // nothing to join
  // e acute + cedilla: e cedilla + acute
  CHECK(nfc("\xC3\xA9\xCC\xA7x") == "\xC8\xA9\xCC\x81x");
  CHECK(nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8") == "\xEA\xB0\x81");  // Hangul
  CHECK(nfc("\xE2\x84\xAB") == "\xC3\x85");                              // the Angstrom sign
  CHECK(nfc("\xE2\x80\x9Cquoted\xE2\x80\x9D \xE4\xB8\xAD") ==
        "\xE2\x80\x9Cquoted\xE2\x80\x9D \xE4\xB8\xAD");
}

TEST_CASE(
    "marks younger than the reference's tables neither move nor let others combine across them") {
  // U+1DF9 (Unicode 10, class 220) before U+0334 (class 1), and between e and an acute.
  CHECK(nfc("a\xE1\xB7\xB9\xCC\xB4") == "a\xE1\xB7\xB9\xCC\xB4");
  CHECK(nfc("e\xE1\xB7\xB9\xCC\x81") == "e\xE1\xB7\xB9\xCC\x81");
  // U+11935 U+11930 compose since Unicode 13 only.
  CHECK(nfc("\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0") == "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0");
}

TEST_CASE("long runs of marks come into order, in time that grows with their length") {
  const int count = 100000;  // swapping neighbours would take minutes
  std::string text = "q", expected = "q";
  for (int i = 0; i < count; ++i) text += "\xCC\x81\xCC\xB4";
  for (int i = 0; i < count; ++i) expected += "\xCC\xB4";  // class 1 before class 230
  for (int i = 0; i < count; ++i) expected += "\xCC\x81";
  CHECK(nfc(text) == expected);
  CHECK(nfc("e" + text.substr(1)) == "\xC3\xA9" + expected.substr(1, expected.size() - 3));
}
