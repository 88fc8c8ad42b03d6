#include "launch/program/prepare_command.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>

#include "common/base/error.h"
#include "data/describe_shards.h"
#include "data/token_shards.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::TempDir;

namespace {

int prepare_code(const std::vector<std::string>& arguments) {
  CLI::App program;
  std::function<int()> chosen;
  add_prepare_command(program, chosen);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  reversed.push_back("prepare");
  try {
    program.parse(reversed);
    return chosen();
  } catch (const CLI::ParseError&) {
    return 2;
  } catch (const Error& error) {
    return int(error.code());
  }
}

}  // namespace

TEST_CASE("prepare wants its paths and a model that is there") {
  const TempDir dir;
  const std::string data = dir.write("data.json", "[]").string();
  CHECK(prepare_code({}) == 2);
  CHECK(prepare_code({"--model", dir.path().string(), "--data", data}) == 2);
  CHECK(prepare_code({"--model", (dir / "none").string(), "--data", data, "--out",
                      (dir / "out").string()}) == 2);
  CHECK_FALSE(std::filesystem::exists(dir / "out"));
}

TEST_CASE("prepare with a real tokenizer marks exactly the answers and their ends") {
  const auto model = test::shared("data/tokenizers/smollm2");
  const auto cases = test::shared("cases");
  if (!model || !cases) return;
  const TempDir dir;
  const std::string out = (dir / "out").string();
  const auto code = [&](const std::string& name, std::vector<std::string> more) {
    std::filesystem::remove_all(out);
    more.insert(more.end(),
                {"--model", model->string(), "--data", (*cases / name).string(), "--out", out});
    return prepare_code(more);
  };
  REQUIRE(code("d-c2-spans.json", {"--max-len", "64", "--held-out", "0"}) == 0);
  const std::string text = describe_shards(out);
  CHECK_THAT(
      text,
      Catch::EndsWith(
          "<|im_start|>user\nuser message<|im_end|>\n<|im_start|>assistant\n⟦ok<|im_end|>⟧\n\n"));

  CHECK(code("d-s1-truncated.json", {}) == 74);
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK(code("d-s1-truncated-in-utf8.json", {"--allow-truncated", "--held-out", "0"}) == 0);
  CHECK(TokenShards::open(out, "train").size() == 3);
  CHECK(code("d-s1-trailing-garbage.json", {}) == 74);
  CHECK(code("d-s1-trailing-garbage.json", {"--limit", "5", "--held-out", "0"}) == 0);

  REQUIRE(code("d-c1-roles.json", {"--template", "chatml", "--held-out", "0"}) == 0);
  const auto counts = TokenShards::open(out, "train").facts().counts;
  CHECK(counts.at("read") == 7);
  CHECK(counts.at("kept") == 3);  // gpt-first, system-first, ends-human
  CHECK(counts.at("skipped.role_order") == 3);
  CHECK(counts.at("skipped.no_answer") == 1);
}
