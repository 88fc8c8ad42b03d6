#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/byte_tokenizer.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

using dex::test::dex_program;
using dex::test::Outcome;

TEST_CASE("the program names its version on stdout") {
  const Outcome outcome = dex_program("--version");
  CHECK(outcome.code == 0);
  CHECK(outcome.out.rfind("dex ", 0) == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("help goes to stdout and succeeds") {
  const Outcome outcome = dex_program("--help");
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("--quiet") != std::string::npos);
}

TEST_CASE("a command line that cannot be understood is one line on stderr and exit code 2") {
  for (const char* arguments : {"", "nonsense", "--nonsense", "--quiet"}) {
    INFO("dex " << arguments);
    const Outcome outcome = dex_program(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.rfind("dex: error: ", 0) == 0);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
}

TEST_CASE("whole numbers that do not fit are refused with what does, never rounded") {
  for (const auto& [arguments, words] :
       {std::pair{"train --model m --depths 1 --dry-run --steps 9223372036854775808",
                  "--steps: 9223372036854775808, wanted "},
        {"train --model m --depths 1 --dry-run --steps -99999999999999999999",
         "--steps: -99999999999999999999, wanted "},
        {"train --model m --depths 1 --dry-run --seed 18446744073709551616",
         "wanted 0 .. 18446744073709551615"},
        {"train --model m --depths 1 --dry-run --seed -1", "--seed: -1, wanted 0 .. "},
        {"train --model m --depths 1 --dry-run --batch-size 2147483648", "--batch-size"},
        {"decode --model m --seed -1", "--seed"},
        {"decode --model m --max-tokens 99999999999999999999", "--max-tokens"}}) {
    const Outcome outcome = dex_program(arguments);
    INFO("dex " << arguments << ": " << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find(words) != std::string::npos);
    CHECK(outcome.err.size() < 300);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
}

TEST_CASE("exit codes tell who can help, and the last line on stdout is the result") {
  const dex::test::TempDir dir;
  const auto model = dex::test::TinyModel{.vocab = dex::test::kByteVocabulary}.write(dir / "m");
  dex::test::write_byte_tokenizer(model);
  dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\nnot json\n");
  const std::string decode =
      "--quiet decode --method dex --max-tokens 3 --depths 2 --model " + model.string();
  const std::string jobs = (dir / "jobs.jsonl").string(), out = (dir / "out.jsonl").string();

  const Outcome good = dex_program(decode + " --prompt-ids 1,2,3 --verify");
  CHECK(good.code == 0);
  const auto end = good.out.find_last_not_of('\n');
  const auto start = good.out.rfind('\n', end);
  CHECK(nlohmann::json::parse(good.out.substr(start + 1)).at("verified") == true);

  for (const char* ids : {"''", "1,", "1,,2", "a", "1,2x", "-1", "99999999999"}) {
    CAPTURE(ids);
    CHECK(dex_program(decode + " --prompt-ids " + ids).code == 2);
  }
  CHECK(dex_program(decode + " --input " + jobs + " --output " + jobs).code == 2);
  CHECK(dex_program(decode + " --input " + jobs + " --output " + out).code == 3);
  const Outcome there = dex_program(decode + "-missing --input " + jobs + " --output " + out);
  CHECK(there.code == 2);  // before the model is looked for
  CHECK_THAT(there.err, Catch::Contains(out) && Catch::Contains("--overwrite"));
  const Outcome again =
      dex_program(decode + " --input " + jobs + " --output " + out + " --overwrite");
  CHECK(again.code == 3);
  CHECK(again.err == "");
  CHECK(good.err == "");
  CHECK(dex_program(decode + "-missing --prompt-ids 1").code == 2);
  CHECK(dex_program("--quiet decode --prompt a --json --model " + model.string() +
                    " --max-tokens 2 >/dev/full")
            .code == 74);
  const auto size = std::filesystem::file_size(model / "model.safetensors");
  std::filesystem::resize_file(model / "model.safetensors", size - 1);
  CHECK(dex_program(decode + " --prompt-ids 1").code == 74);
}

TEST_CASE("a bench ends with its result and leaves a line per measurement") {
  const dex::test::TempDir dir;
  const auto model = dex::test::TinyModel{}.write(dir / "m");
  const std::string bench =
      "--quiet bench --threads 1 --prompt-tokens 8 --tokens 4 --repeats 2 --model " +
      model.string();
  const Outcome good = dex_program(bench + " --depths 2 --json " + (dir / "lines.jsonl").string());
  CHECK(good.code == 0);
  CHECK(good.err == "");
  const auto start = good.out.rfind('\n', good.out.find_last_not_of('\n'));
  const auto result = nlohmann::json::parse(good.out.substr(start + 1));
  CHECK(result.at("verified") == true);
  CHECK(result.at("methods").at("ar").at("tokens_per_second") > 0);
  CHECK(result.at("methods").at("dex").at("rounds_per_token") >= 1);
  const std::string lines = dex::test::contents(dir / "lines.jsonl");
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 4);

  for (const char* wrong : {" --methods fast", " --repeats 0", " --tokens 1000", " --dtype f16",
                            " --prompts /nonexistent", " --context 1 --prompts /nonexistent"}) {
    CAPTURE(wrong);
    CHECK(dex_program(bench + wrong).code == 2);
  }
  for (const auto& file : {dir / "absent" / "lines.jsonl", dir.path()}) {
    const Outcome refused = dex_program(bench + " --json " + file.string());
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Catch::Contains("--json is " + file.string() + ","));
  }
  CHECK(std::filesystem::is_directory(dir.path()));

  dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\n");
  const Outcome no_tokenizer = dex_program(bench + " --prompts " + (dir / "jobs.jsonl").string());
  CHECK(no_tokenizer.code == 2);
  CHECK_THAT(no_tokenizer.err,
             Catch::Contains("no tokenizer.json") && !Catch::Contains("give --prompt-ids"));
}

// Of a model without weights nothing but its config can be read.
TEST_CASE("options that cannot be are refused before the model is loaded, whatever the method") {
  const dex::test::TempDir dir;
  const auto model = dex::test::TinyModel{.max_positions = 1000}.write(dir / "m");
  std::filesystem::remove(model / "model.safetensors");
  dir.write("full/precious.txt", "mine");
  dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\n");
  const auto refused = [&](const std::string& command, const std::string& words) {
    const Outcome outcome = dex_program(command + " --model " + model.string());
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find(words) != std::string::npos);
    CHECK(outcome.err.find("model.safetensors") == std::string::npos);
  };
  const std::string decode = "--quiet decode --prompt-ids 1 --depths 2",
                    bench = "--quiet bench --depths 2";
  for (const auto& command :
       {decode + " --method ar", decode + " --method dex", bench + " --methods ar", bench}) {
    refused(command + " --expand x", "--expand is \"x\"");
    refused(command + " --no-decs", "--no-decs");
    refused(command + " --single-exit", "--single-exit");
    refused(command + " --rows 0", "0 rows");
    refused(command + " --width -1", "width -1");
    refused(command + " --devices cuda:0", "\"cuda:0\"");
    refused(command + " --devices cpu:0", "1 devices");
    refused(command + " --devices cpu:0,cpu:100000", "\"cpu:100000\"");
    refused(command + " --template none", "\"none\"");
    refused(command + " --threads -1", "--threads is -1");
    refused(command + " --dtype f16", "f16");
  }
  refused("--quiet decode --prompt-ids 1,x", "--prompt-ids is \"1,x\"");
  refused(bench + " --methods x", "--methods names \"x\"");
  refused(bench + " --methods ar,ar", "--methods names ar twice");
  refused(bench + " --repeats 0", "--repeats is 0");
  refused(bench + " --tokens 1000", "1001");
  refused(bench + " --prompt-tokens 1000", "1001");
  refused(bench + " --json " + dir.path().string(), "--json is");
  const std::string jobs = (dir / "jobs.jsonl").string(), full = (dir / "full").string();
  refused("--quiet ead --prompts " + jobs + " --out " + full, "something else");
}

TEST_CASE("options come from a file, and the command line goes before it") {
  const dex::test::TempDir dir;
  const auto model = dex::test::TinyModel{}.write(dir / "m");
  const auto result = [](const Outcome& outcome) {
    REQUIRE(outcome.code == 0);
    return nlohmann::json::parse(outcome.out);
  };
  const std::string file =
      dir.write("options.conf", "# a comment\n\nmodel = " + model.string() +
                                    "\r\n  prompt-ids = 1,2,3\nmax-tokens=5\njson = "
                                    "true\nignore-stop = true\ndepths = 1,3\nmethod = dex")
          .string();
  const auto five = result(dex_program("--quiet decode --config " + file));
  CHECK(five.at("ids").size() == 5);
  CHECK(five.at("prompt_tokens") == 3);
  CHECK(five.at("counts").at("depths") == nlohmann::json{1, 3, 4});
  CHECK(five.at("ids") == result(dex_program("--config " + file + " --quiet decode")).at("ids"));
  CHECK(result(dex_program("--quiet decode --max-tokens 2 --config " + file)).at("ids").size() ==
        2);
}

TEST_CASE("a file of options is refused with its line") {
  const dex::test::TempDir dir;
  const auto refused = [&](const std::string& text, const std::string& words) {
    const auto file = dir.write("options.conf", text);
    const Outcome outcome =
        dex_program("decode --prompt-ids 1 --model /nonexistent --config " + file.string());
    CAPTURE(text, outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find(words) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  refused("max-tokens = 3\nsteps = 3\n",
          "options.conf line 2: \"steps\" is no option of dex decode");
  refused("max-tokens 3\n", "options.conf line 1: \"max-tokens 3\", wanted option = value");
  refused("max-tokens =\n", "options.conf line 1");
  refused("= 3\n", "options.conf line 1");
  refused("rows = 1\n# rows\nrows = 2", "options.conf line 3: \"rows\" stands in line 1, too");
  refused("help = true\n", "options.conf line 1: \"help\" is no option");
  refused("max-tokens = many\n", "--max-tokens");
  refused("json = perhaps\n", "perhaps");
  CHECK(dex_program("decode --config /nonexistent").code == 2);
  CHECK(dex_program("decode --config " + dir.path().string()).code == 2);
}
