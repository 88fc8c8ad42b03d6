#include "data/sharegpt_reader.h"

#include <catch2/catch.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::TempDir;

namespace {

std::vector<RawRecord> read_all(SharegptReader& reader) {
  std::vector<RawRecord> records;
  while (auto record = reader.next()) records.push_back(*record);
  return records;
}

ExitCode code_of_reading(const std::filesystem::path& path) {
  try {
    SharegptReader reader(path);
    read_all(reader);
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

std::string message_of_reading(const std::filesystem::path& path) {
  try {
    SharegptReader reader(path);
    read_all(reader);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const std::string kRecords[] = {
    R"({"id": "a_0", "conversations": [{"from": "human", "value": "brackets ]}[{ and \" and \\"}, {"from": "gpt", "value": "é你"}]})",
    R"({"id":"b","conversations":[]})",
    "{\n \"id\": \"c\",\n \"conversations\": [ {\"from\": \"human\", \"value\": \"x\"} ]\n}",
};

}  // namespace

TEST_CASE("records come out one by one with their number and byte offset") {
  const TempDir dir;
  const std::string text =
      " [\n" + kRecords[0] + " ,\r\n\t" + kRecords[1] + "," + kRecords[2] + "\n]\n";
  SharegptReader reader(dir.write("whole.json", text));
  const auto records = read_all(reader);
  REQUIRE(records.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(records[i].number == i);
    CHECK(records[i].text == kRecords[i]);
    CHECK(text.substr(records[i].offset, records[i].text.size()) == kRecords[i]);
  }
  CHECK_FALSE(reader.cut());
  CHECK_FALSE(reader.next());
  CHECK(reader.offset() == text.size());
  CHECK(reader.digest_so_far() == sha256_of(text));
}

TEST_CASE("a file cut at any byte gives its whole records and tells where it was cut") {
  const TempDir dir;
  const std::string text = "[" + kRecords[0] + ",\n" + kRecords[1] + ",\n" + kRecords[2] + "\n]";
  for (std::size_t length = 1; length < text.size(); ++length) {
    SharegptReader reader(dir.write("cut" + std::to_string(length), text.substr(0, length)));
    std::size_t whole = 0;
    for (std::size_t i = 0; i < 3; ++i)
      whole += text.find(kRecords[i]) + kRecords[i].size() <= length;
    const auto records = read_all(reader);
    CAPTURE(length);
    REQUIRE(records.size() == whole);
    REQUIRE(reader.cut());
    CHECK(reader.cut()->record == whole);
    CHECK(reader.cut()->end == length);
    const std::size_t next = whole < 3 ? text.find(kRecords[whole]) : length;
    CHECK(reader.cut()->record_offset == std::min(length, next));
  }
}

TEST_CASE("bytes that no cut explains are refused with their offset") {
  const TempDir dir;
  const auto refused = [&](const std::string& text, const std::string& byte) {
    const auto path = dir.write("bad.json", text);
    CAPTURE(text);
    CHECK(code_of_reading(path) == ExitCode::io);
    CHECK_THAT(message_of_reading(path),
               Catch::Contains("bad.json") && Catch::Contains("byte " + byte));
  };
  refused("[{}] {}", "5");
  refused("[{}]\n]\n", "5");
  refused("[{} {}]", "4");
  refused("[{},]", "4");
  refused("[,{}]", "1");
  refused("{\"id\":\n1}\n", "0");
  refused("<html>", "0");
}

TEST_CASE("an empty file is refused, an open bracket is a cut, an empty array holds nothing") {
  const TempDir dir;
  CHECK(code_of_reading(dir.write("empty.json", "")) == ExitCode::io);
  CHECK(code_of_reading(dir.write("blank.json", " \n")) == ExitCode::io);
  CHECK(code_of_reading(dir / "absent.json") == ExitCode::usage);
  CHECK(code_of_reading(dir.path()) == ExitCode::usage);
  SharegptReader open(dir.write("open.json", "[\n"));
  CHECK_FALSE(open.next());
  REQUIRE(open.cut());
  CHECK(open.cut()->record == 0);
  SharegptReader none(dir.write("none.json", "\xef\xbb\xbf[]"));
  CHECK_FALSE(none.next());
  CHECK_FALSE(none.cut());
}

TEST_CASE("nothing after the record asked for is looked at") {
  const TempDir dir;
  SharegptReader reader(
      dir.write("later.json", "[" + kRecords[1] + "," + kRecords[1] + "}}} garbage"));
  CHECK(reader.next()->number == 0);
  CHECK(reader.next()->number == 1);
  CHECK(reader.offset() == 2 + 2 * kRecords[1].size());
}

TEST_CASE("endless nesting and endless records are refused") {
  const TempDir dir;
  CHECK(code_of_reading(dir.write("deep.json", std::string(1000, '['))) == ExitCode::io);
  CHECK(code_of_reading(dir.write("long.json", "[\"" + std::string(70u << 20, 'x') + "\"]")) ==
        ExitCode::io);
  CHECK(code_of_reading(dir.write("long.json", "[[\"" + std::string(70u << 20, 'x') + "\"]]")) ==
        ExitCode::io);
}

TEST_CASE("the shared cut and altered files are told apart") {
  const auto cases = test::shared("cases");
  if (!cases) return;
  const auto cut_after = [&](const std::string& name) -> std::optional<std::uint64_t> {
    SharegptReader reader(*cases / name);
    read_all(reader);
    return reader.cut() ? std::optional(reader.cut()->record) : std::nullopt;
  };
  CHECK(cut_after("d-s1-truncated.json") == 3);
  CHECK(cut_after("d-s1-truncated-in-utf8.json") == 3);
  CHECK(cut_after("d-s1-cut-after-comma.json") == 3);
  CHECK(cut_after("d-s1-open-bracket.json") == 0);
  CHECK(code_of_reading(*cases / "d-s1-empty.json") == ExitCode::io);
  CHECK(code_of_reading(*cases / "d-s1-trailing-garbage.json") == ExitCode::io);
  CHECK(code_of_reading(*cases / "d-s2-roles.json") == ExitCode::done);
}

TEST_CASE("one object a line is found from the first byte, with any line ends and a mark before") {
  const TempDir dir;
  const std::string one = R"({"id":"a","conversations":[]})", two = R"({"id":"b ]}"})";
  for (const char* mark : {"", "\xEF\xBB\xBF"})
    for (const char* end : {"\n", "\r\n", "\n\n", " \t\r\n \n"})
      for (const bool last : {true, false}) {
        const std::string text = mark + one + end + two + (last ? end : "");
        CAPTURE(text);
        SharegptReader reader(dir.write("lines.jsonl", text));
        const auto records = read_all(reader);
        REQUIRE(records.size() == 2);
        CHECK(records[0].text == one);
        CHECK(records[1].text == two);
        CHECK(records[1].number == 1);
        CHECK(text.substr(records[1].offset, two.size()) == two);
        CHECK_FALSE(reader.cut());
        CHECK(reader.offset() == text.size());
        CHECK(reader.digest_so_far() == sha256_of(text));
      }
}

TEST_CASE("a broken line is a record, a last line without its end is a cut") {
  const TempDir dir;
  const std::string one = R"({"id":"a"})";
  for (const char* broken : {R"({"id":"x)", R"({"id":"x"}}})", "}{", "[[", "text", R"({"id":"x"},)",
                             R"({"id":"x"}{"id":"y"})"}) {
    CAPTURE(broken);
    SharegptReader reader(dir.write("lines.jsonl", one + "\n" + broken + "\n" + one + "\n"));
    const auto records = read_all(reader);
    REQUIRE(records.size() == 3);
    CHECK(records[1].text == broken);
    CHECK(records[2].text == one);
    CHECK_FALSE(reader.cut());
  }
  for (std::size_t length = 1; length < one.size(); ++length) {
    SharegptReader reader(dir.write("cut.jsonl", one + "\n" + one.substr(0, length)));
    CHECK(read_all(reader).size() == 1);
    REQUIRE(reader.cut());
    CHECK(reader.cut()->record == 1);
    CHECK(reader.cut()->record_offset == one.size() + 1);
  }
  CHECK(code_of_reading(dir.write("deep.jsonl", one + "\n" + std::string(1000, '[') + "\n")) ==
        ExitCode::io);
}

TEST_CASE("UTF-16 and UTF-32 are named") {
  const TempDir dir;
  for (const std::string& start :
       {std::string("\xFF\xFE[\0", 4), std::string("\xFE\xFF\0[", 4), std::string("[\0{\0", 4),
        std::string("\0[\0{", 4), std::string("\0\0\0[", 4), std::string("{\0\0\0", 4)}) {
    const auto path = dir.write("wide.json", start);
    CHECK(code_of_reading(path) == ExitCode::io);
    CHECK_THAT(message_of_reading(path), Catch::Contains("UTF-16") && Catch::Contains("UTF-8"));
  }
}
