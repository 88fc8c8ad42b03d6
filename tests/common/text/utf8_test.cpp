#include "common/text/utf8.h"

#include <catch2/catch.hpp>

#include "common/base/error.h"

using namespace dex;

namespace {

const std::string kBad = "\xEF\xBF\xBD";

std::string mended(std::string text) { return take_utf8(text, true); }

}  // namespace

TEST_CASE("valid UTF-8 ends where the first bad byte stands") {
  CHECK(valid_utf8_prefix("") == 0);
  CHECK(valid_utf8_prefix("plain ascii, longer than eight bytes") == 36);
  CHECK(valid_utf8_prefix("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == 10);
  CHECK(valid_utf8_prefix("ab\x80") == 2);              // a continuation byte alone
  CHECK(valid_utf8_prefix("ab\xC0\x80") == 2);          // overlong
  CHECK(valid_utf8_prefix("ab\xE0\x9F\xBF") == 2);      // overlong
  CHECK(valid_utf8_prefix("ab\xED\xA0\x80") == 2);      // a surrogate
  CHECK(valid_utf8_prefix("ab\xF4\x90\x80\x80") == 2);  // above U+10FFFF
  CHECK(valid_utf8_prefix("ab\xF0\x9F\x98") == 2);      // cut
  CHECK_THROWS_WITH(require_utf8("12345678\xFF", "here"),
                    Catch::Contains("here") && Catch::Contains("0xff at offset 8 of 9"));
}

TEST_CASE("ill-formed bytes become one U+FFFD for each longest start of a sequence") {
  // The example of the Unicode standard, section 3.9, "U+FFFD substitution of maximal subparts".
  CHECK(mended("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64") ==
        "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  CHECK(mended("\xED\xA0\x80") == kBad + kBad + kBad);
}

TEST_CASE("a started character is held back until it is decided") {
  std::string held = "x\xF0\x9F";
  CHECK(take_utf8(held, false) == "x");
  CHECK(held == "\xF0\x9F");
  held += "\x98\x80y";
  CHECK(take_utf8(held, false) == "\xF0\x9F\x98\x80y");
  held = "\xF0\x9F";
  CHECK(take_utf8(held, false).empty());
  held += "z";
  CHECK(take_utf8(held, false) == kBad + "z");
}

TEST_CASE("code points come out of their bytes") {
  CHECK(first_code_point("A").value == U'A');
  CHECK(first_code_point("\xC3\xA9").value == 0xE9);
  CHECK(first_code_point("\xE2\x82\xAC").value == 0x20AC);
  CHECK(first_code_point("\xF0\x9F\x98\x80x").value == 0x1F600);
  CHECK(first_code_point("\xF0\x9F\x98\x80x").size == 4);
}
