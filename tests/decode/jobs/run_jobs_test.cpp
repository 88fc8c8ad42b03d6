#include "decode/jobs/run_jobs.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "decode/jobs/answer_row.h"
#include "decode/jobs/job_prompt.h"
#include "kernels/numbers_version.h"
#include "tests/support/breaking_model.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/python.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using Json = nlohmann::json;

std::vector<Json> lines_of(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::filesystem::path tiny(const test::TempDir& dir) {
  const auto path =
      test::TinyModel{.layers = 6, .vocab = test::kByteVocabulary + 5, .max_positions = 64}.write(
          dir / "model");
  test::write_byte_tokenizer(path);
  return path;
}

SessionOptions options(const std::filesystem::path& model) {
  return {.model = model, .depths = "2,4", .chat_template = "chatml", .threads = 2};
}

}  // namespace

TEST_CASE(
    "every non-blank line gets one answer in input order, and the answers do not tell what decoded "
    "them") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const auto input =
      dir.write("jobs.jsonl",
                "{\"custom_id\":\"a\",\"prompt\":\"hello\",\"max_tokens\":9}\n\nnot json\n"
                "{\"custom_id\":\"c\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_"
                "tokens\":5}\n"
                "{\"custom_id\":\"long\",\"prompt\":\"" +
                    std::string(64, 'q') +
                    "\"}\n"
                    "{\"custom_id\":\"none\",\"prompt\":\"x\",\"max_tokens\":0}\n"
                    "{\"custom_id\":\"empty\",\"prompt\":\"\"}\n");
  const Session session(options(model));
  CHECK(run_jobs(session, ar_method(), {.input = input, .output = dir / "plain.jsonl"}) == 3);
  CHECK(run_jobs(session, dex_method(),
                 {.input = input, .output = dir / "dex.jsonl", .verify = true}) == 3);
  CHECK(sha256_of_file(dir / "plain.jsonl") == sha256_of_file(dir / "dex.jsonl"));

  const auto rows = lines_of(dir / "dex.jsonl");
  REQUIRE(rows.size() == 6);
  CHECK(rows[0].at("custom_id") == "a");
  CHECK(rows[0].at("error").is_null());
  CHECK(rows[0].at("response").at("body").at("usage").at("prompt_tokens") == 5);
  CHECK(rows[1].at("custom_id").is_null());
  CHECK(rows[1].at("error").at("message").get<std::string>().find("line 3") == 0);
  CHECK(rows[2].at("response").at("body").at("choices")[0].at("message").at("role") == "assistant");
  CHECK(rows[3].at("error").at("message").get<std::string>().find("64 tokens") !=
        std::string::npos);
  CHECK(rows[4].at("response").at("body").at("usage").at("completion_tokens") == 0);
  CHECK(rows[5].at("response").at("status_code") == 400);
  const auto stats = lines_of(dir / "dex.jsonl.stats.jsonl");
  REQUIRE(stats.size() == 3);
  for (const auto& row : stats) CHECK(row.at("numbers_version") == kNumbersVersion);
}

namespace {

// An id that the tokenizer does not know: no exit proposes it.
constexpr Token kBreaker = test::kByteVocabulary + 1;

std::filesystem::path breaks_at_one_id(const test::TempDir& dir) {
  const auto model =
      test::TinyModel{
          .layers = 4, .vocab = test::kByteVocabulary + 5, .max_positions = 64, .tied = false}
          .write(dir / "model");
  test::write_byte_tokenizer(model);
  test::break_at(model, kBreaker);
  return model;
}

}  // namespace

TEST_CASE("a job whose logits are NaN costs its own row, in whatever decodes it") {
  const test::TempDir dir;
  const Session session(options(breaks_at_one_id(dir)));
  const auto job = [](const char* id, const Json& prompt) {
    return Json{{"custom_id", id}, {"prompt", prompt}, {"max_tokens", 5}}.dump() + "\n";
  };
  const auto sound = dir.write("sound.jsonl", job("first", "abc") + job("last", "xyz"));
  const auto broken =
      dir.write("broken.jsonl", job("first", "abc") + "\n" + job("bad", {97, kBreaker, 97}) +
                                    job("worse", {kBreaker}) + job("last", "xyz"));
  for (const Method& method : {ar_method(), dex_method(), dex_method({.expand = "full"})}) {
    const RunJobsOptions to{.overwrite = true, .verify = true};
    auto a = to, b = to;
    a.input = sound, a.output = dir / "sound.out";
    b.input = broken, b.output = dir / "broken.out";
    CHECK(run_jobs(session, method, a) == 0);
    CHECK(run_jobs(session, method, b) == 3);
    const auto want = lines_of(a.output), rows = lines_of(b.output);
    REQUIRE(rows.size() == 4);
    const auto text = [](const Json& row) {
      return row.at("response").at("body").at("choices")[0].at("token_ids");
    };
    CHECK(text(rows[0]) == text(want[0]));
    CHECK(text(rows[3]) == text(want[1]));
    CHECK(rows[1].at("custom_id") == "bad");
    CHECK(rows[2].at("custom_id") == "worse");
    for (const int i : {1, 2}) {
      CHECK(rows[i].at("response").at("status_code") == 400);
      CHECK_THAT(rows[i].at("error").at("message").get<std::string>(),
                 Catch::Contains("line " + std::to_string(i + 2)) && Catch::Contains("NaN"));
    }
    CHECK(lines_of(b.output.string() + ".stats.jsonl").size() == 2);
  }
}

TEST_CASE("an answer's body has the fields and types of the SDK, and is a function of its job") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const Session session(options(model));
  const std::string lines =
      "{\"custom_id\":\"chat\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{"
      "\"model\":\"x\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}}\n"
      "{\"custom_id\":\"text\",\"prompt\":\"go on\",\"max_tokens\":4,\"created\":1700000000}\n"
      "{\"prompt\":[1,2,3],\"max_tokens\":4}\n{\"prompt\":[1,2,3],\"max_tokens\":4}\n"
      "{\"prompt\":[1,99999]}\n";
  const auto input = dir.write("jobs.jsonl", lines), copy = dir.write("copy.jsonl", lines);
  using namespace std::chrono_literals;
  const auto written =
      std::filesystem::file_time_type::clock::from_sys(std::chrono::sys_seconds(1600000000s));
  for (const auto& file : {input, copy}) std::filesystem::last_write_time(file, written + 900ms);
  CHECK(run_jobs(session, dex_method(), {.input = input, .output = dir / "a"}) == 3);
  CHECK(run_jobs(session, ar_method(), {.input = copy, .output = dir / "b"}) == 3);
  CHECK(read_file(dir / "a") == read_file(dir / "b"));

  const auto rows = lines_of(dir / "a");
  REQUIRE(rows.size() == 5);
  std::set<std::string> ids;
  for (const Json& row : rows) ids.insert(row.at("id"));
  CHECK(ids.size() == 5);  // of equal lines, too
  const auto body = [&](int i) { return rows[i].at("response").at("body"); };
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    const Json answer = body(i);
    CHECK(answer.at("id").is_string());
    CHECK(answer.at("object") == (i == 0 ? "chat.completion" : "text_completion"));
    CHECK(answer.at("created") == (i == 1 ? 1700000000 : 1600000000));
    CHECK(answer.at("created").is_number_integer());
    CHECK(answer.at("model") == "model");
    const Json& choice = answer.at("choices").at(0);
    CHECK(answer.at("choices").size() == 1);
    CHECK(choice.at("index") == 0);
    CHECK((choice.at("finish_reason") == "length" || choice.at("finish_reason") == "stop"));
    CHECK(choice.at("logprobs").is_null());
    if (i == 0) {
      CHECK(choice.at("message").at("role") == "assistant");
      CHECK(choice.at("message").at("content").is_string());
      CHECK(choice.at("message").at("refusal").is_null());
    } else {
      CHECK(choice.at("text").is_string());
    }
    const Json& usage = answer.at("usage");
    for (const char* name : {"prompt_tokens", "completion_tokens", "total_tokens"})
      CHECK(usage.at(name).is_number_integer());
    CHECK(usage.at("total_tokens") ==
          usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>());
  }
  CHECK(body(2) == body(3));
  CHECK(body(0).at("id").get<std::string>().starts_with("chatcmpl-"));
  CHECK(body(2).at("usage").at("prompt_tokens") == 3);  // nothing before ids
  CHECK_THAT(rows[4].at("error").at("message").get<std::string>(),
             Catch::Contains("99999") && Catch::Contains("line 5"));
}

TEST_CASE("the end token is not part of an answer, special or not") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const auto input = dir.write("jobs.jsonl", "{\"prompt\":[7,8,9],\"max_tokens\":12}\n");
  const auto choice = [&](const char* output) {
    const Session session(options(model));
    CHECK(run_jobs(session, dex_method(), {.input = input, .output = dir / output}) == 0);
    return lines_of(dir / output)[0].at("response").at("body").at("choices")[0];
  };
  const std::vector<int> all = choice("free").at("token_ids");
  REQUIRE(all.size() == 12);
  const auto end = std::find_if(all.begin() + 1, all.end(), [&](int id) {
    return id < 256 && std::find(all.begin(), all.end(), id) != all.begin();
  });
  REQUIRE(end != all.end());
  const auto first = std::find(all.begin(), all.end(), *end);
  Json config = Json::parse(read_file(model / "config.json"));
  config["eos_token_id"] = *end;
  write_file(model / "config.json", config.dump());
  const Json cut = choice("bound");
  CHECK(cut.at("finish_reason") == "stop");
  CHECK(cut.at("stop_reason") == *end);
  CHECK(cut.at("token_ids") == std::vector<int>(all.begin(), first + 1));
  const std::vector<Token> before(all.begin(), first);
  CHECK(cut.at("text") == Json::parse(line_of(load_tokenizer(model)->decode(before, false))));
}

TEST_CASE("an output that is there is replaced when that is asked for") {
  const test::TempDir dir;
  const Session session(options(tiny(dir)));
  const auto input = dir.write("jobs.jsonl", "{\"prompt\":\"a\",\"max_tokens\":2}\n");
  for (const char* name : {"out.jsonl", "out.jsonl.stats.jsonl"}) {
    const auto there = dir.write(name, "mine");
    test::check_refused(ExitCode::usage, {there.string(), "--overwrite"}, [&] {
      run_jobs(session, dex_method(), {.input = input, .output = dir / "out.jsonl"});
    });
    CHECK(read_file(there) == "mine");
    CHECK(run_jobs(session, dex_method(),
                   {.input = input, .output = dir / "out.jsonl", .overwrite = true}) == 0);
    CHECK(read_file(there) != "mine");
    std::filesystem::remove(dir / "out.jsonl");
    std::filesystem::remove(dir / "out.jsonl.stats.jsonl");
  }
}

TEST_CASE("an output that is no file is refused before anything is read, whatever it is") {
  namespace fs = std::filesystem;
  const test::TempDir dir;
  const auto input = dir.write("jobs.jsonl", "{\"prompt\":\"a\",\"max_tokens\":2}\n");
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  fs::create_symlink("/dev/full", dir / "link");
  fs::create_directory(dir / "directory");
  const Session session(options(tiny(dir)));
  for (const fs::path& output : {fs::path("/dev/full"), fs::path("/dev/null"), dir / "pipe",
                                 dir / "link", dir / "directory"})
    for (const bool overwrite : {false, true}) {
      CAPTURE(output, overwrite);
      const RunJobsOptions to{.input = input, .output = output, .overwrite = overwrite};
      const fs::file_type before = fs::symlink_status(output).type();
      for (const bool early : {true, false})
        test::check_refused(ExitCode::usage, {output.string(), "wants a file"}, [&] {
          if (early)
            check_output(to);
          else
            run_jobs(session, ar_method(), to);
        });
      CHECK(fs::symlink_status(output).type() == before);
    }
  // nor may the statistics beside it be one
  REQUIRE(mkfifo((dir / "out.jsonl.stats.jsonl").c_str(), 0600) == 0);
  test::check_refused(ExitCode::usage, {"out.jsonl.stats.jsonl", "wants a file"}, [&] {
    check_output({.input = input, .output = dir / "out.jsonl", .overwrite = true});
  });
  CHECK(fs::is_fifo(dir / "out.jsonl.stats.jsonl"));
}

TEST_CASE("a failed run leaves no output") {
  const test::TempDir dir;
  const Session session(options(tiny(dir)));
  const auto blank = dir.write("blank.jsonl", "\n\n");
  CHECK_THROWS_AS(run_jobs(session, dex_method(), {.input = blank, .output = dir / "out.jsonl"}),
                  Error);
  CHECK_THROWS_AS(run_jobs(session, dex_method(),
                           {.input = dir / "missing.jsonl", .output = dir / "out.jsonl"}),
                  Error);
  CHECK_FALSE(std::filesystem::exists(dir / "out.jsonl"));
  const auto jobs = dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\n");
  const std::string before = read_file(jobs);
  CHECK_THROWS_WITH(run_jobs(session, dex_method(), {.input = jobs, .output = jobs}),
                    Catch::Contains("--input"));
  CHECK_THROWS_WITH(run_jobs(session, dex_method(), {.input = jobs, .output = dir.path()}),
                    Catch::Contains("directory"));
  CHECK_THROWS_WITH(
      run_jobs(session, dex_method(), {.input = jobs, .output = dir / "none" / "out.jsonl"}),
      Catch::Contains("none"));
  CHECK(read_file(jobs) == before);
}

TEST_CASE("jobs at the edges of a 64-position model end as plain decoding does") {
  const auto model = test::shared("cases/d-m1"), jobs = test::shared("cases/d-g2-boundaries.jsonl");
  if (!model || !jobs) return;
  const test::TempDir dir;
  const Session session({.model = *model, .depths = "1", .threads = 1});
  CHECK(run_jobs(session, dex_method({.expand = "full"}),
                 {.input = *jobs, .output = dir / "out.jsonl", .verify = true}) == 3);
  std::map<std::string, Json> by_id;
  for (Json& row : lines_of(dir / "out.jsonl")) by_id[row.at("custom_id").get<std::string>()] = row;
  CHECK(by_id.size() == 21);
  for (const char* id : {"over-65", "over-5000", "neg-max", "temp-neg", "temp-string", "empty"}) {
    CAPTURE(id);
    CHECK_FALSE(by_id.at(id).at("error").is_null());
  }
  for (const char* id :
       {"one-new", "fills-to-63", "cap-past-context", "near-end", "ok-last", "zero-new"}) {
    CAPTURE(id);
    CHECK(by_id.at(id).at("error").is_null());
    const auto& usage = by_id.at(id).at("response").at("body").at("usage");
    CHECK(usage.at("total_tokens").get<int>() <= 64);
  }
}

}  // namespace dex

namespace dex {
namespace {

const std::string kOwnTemplate =
    "{{ word | default('') }}{% for m in messages %}{% if 'RAISE' in m.content %}{{ "
    "raise_exception('not that') }}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + "
    "(m.reasoning_content or '') + m.content + '<|im_end|>' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// A model whose template Python has to render.
SessionOptions with_own_template(const std::filesystem::path& model, const std::string& python) {
  write_file(model / "tokenizer_config.json", Json{{"chat_template", kOwnTemplate}}.dump());
  SessionOptions made = options(model);
  made.chat_template = "";
  made.rendering.python = python;
  return made;
}

Json chat_line(const std::string& id, const std::string& content, Json more = Json::object()) {
  Json line = {{"custom_id", id},
               {"max_tokens", 2},
               {"messages", {{{"role", "user"}, {"content", content}}}}};
  line.update(more);
  return line;
}

}  // namespace

TEST_CASE("a job says how its template renders") {
  const auto python = test::python_with_jinja2();
  if (!python) return;
  const test::TempDir dir;
  const Session session(with_own_template(tiny(dir), *python));
  const auto prompt = [&](const Json& line) {
    const auto lines = parse_jobs(line.dump());
    return prompt_of(std::get<Job>(lines.at(0).content), session, false);
  };
  const auto ids = [&](const std::string& text) {
    return session.tokenizer().encode_with_special(text);
  };
  const std::string asked = "<|im_start|>user\nhi<|im_end|>", header = "<|im_start|>assistant\n";
  CHECK(prompt(chat_line("a", "hi")) == ids(asked + header));
  CHECK(prompt(chat_line("a", "hi", {{"add_generation_prompt", false}})) == ids(asked));
  CHECK(prompt(chat_line("a", "hi", {{"chat_template_kwargs", {{"word", "so: "}}}})) ==
        ids("so: " + asked + header));
  Json begun =
      chat_line("a", "hi", {{"add_generation_prompt", false}, {"continue_final_message", true}});
  begun["messages"].push_back({{"role", "assistant"}, {"content", "It is "}});
  CHECK(prompt(begun) == ids(asked + header + "It is "));
  begun["chat_template_kwargs"] = {{"word", "!"}};
  CHECK(prompt(begun) == ids("!" + asked + header + "It is "));
  begun["continue_final_message"] = false;
  CHECK(prompt(begun) == ids("!" + asked + header + "It is <|im_end|>"));
  // a name alone has no text to give them to
  const Session named(options(tiny(dir)));
  const auto line = parse_jobs(chat_line("a", "hi", {{"chat_template_kwargs", {{"a", 1}}}}).dump());
  CHECK_THROWS_WITH(prompt_of(std::get<Job>(line.at(0).content), named, false),
                    Catch::Contains("chatml") && Catch::Contains("kwargs"));
}

TEST_CASE("a conversation that ends its template's process costs its own row") {
  const auto python = test::python_with_jinja2();
  if (!python) return;
  const test::TempDir dir;
  // Python that dies of one word, and hangs at another
  const auto frail = dir.write("frail", "#!/bin/sh\nexec '" + *python +
                                            "' -c \"import json, os, signal, time\n"
                                            "taken = json.loads\n"
                                            "def loads(body):\n"
                                            "    if b'DIE' in body: os.kill(os.getpid(), 9)\n"
                                            "    if b'HANG' in body:\n"
                                            "        signal.alarm(1)\n"
                                            "        time.sleep(100)\n"
                                            "    return taken(body)\n"
                                            "json.loads = loads\n"
                                            "$2\"\n");
  std::filesystem::permissions(frail, std::filesystem::perms::owner_all);
  const Session session(with_own_template(tiny(dir), frail.string()));
  std::string lines;
  for (const char* content : {"one", "DIE", "two", "HANG", "RAISE", "three"})
    lines += chat_line(content, content).dump() + "\n";
  const auto input = dir.write("jobs.jsonl", lines);
  CHECK(run_jobs(session, ar_method(), {.input = input, .output = dir / "out.jsonl"}) == 3);
  const auto rows = lines_of(dir / "out.jsonl");
  REQUIRE(rows.size() == 6);
  for (const int answered : {0, 2, 5}) CHECK(rows[std::size_t(answered)].at("error").is_null());
  const auto reason = [&](std::size_t row) {
    return rows[row].at("error").at("message").get<std::string>();
  };
  CHECK_THAT(reason(1), Catch::Contains("line 2") && Catch::Contains("signal 9"));
  CHECK_THAT(reason(3), Catch::Contains("line 4") && Catch::Contains("signal 14"));
  CHECK_THAT(reason(4), Catch::Contains("line 5") && Catch::Contains("not that"));
}

TEST_CASE("a Python that is missing is told once, and where nothing needs it not at all") {
  const test::TempDir dir;
  const Session session(with_own_template(tiny(dir), "/no/such/python"));
  const auto input = dir.write(
      "jobs.jsonl", chat_line("a", "hi").dump() + "\n" + chat_line("b", "ho").dump() + "\n");
  CHECK_THROWS_WITH(run_jobs(session, ar_method(), {.input = input, .output = dir / "out.jsonl"}),
                    Catch::Contains("/no/such/python") && Catch::Contains("--python"));
  CHECK(!std::filesystem::exists(dir / "out.jsonl"));
  const auto prompts = dir.write("prompts.jsonl", "{\"prompt\":\"x\",\"max_tokens\":1}\n");
  CHECK(run_jobs(session, ar_method(), {.input = prompts, .output = dir / "out.jsonl"}) == 0);
}

TEST_CASE("reasoning that the job's template leaves out is refused in its own row") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  Json thinks = chat_line("thinks", "hi");
  thinks["messages"].push_back(
      {{"role", "assistant"}, {"content", "yes"}, {"reasoning_content", "hm"}});
  thinks["messages"].push_back({{"role", "user"}, {"content", "why"}});
  const auto input =
      dir.write("jobs.jsonl", thinks.dump() + "\n" + chat_line("plain", "hi").dump() + "\n");
  const Session hides(options(model));
  CHECK(run_jobs(hides, ar_method(), {.input = input, .output = dir / "out.jsonl"}) == 3);
  const auto rows = lines_of(dir / "out.jsonl");
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0].at("error").at("message").get<std::string>(),
             Catch::Contains("message 2") && Catch::Contains("reasoning_content") &&
                 Catch::Contains("chatml"));
  CHECK(rows[1].at("error").is_null());
  const auto python = test::python_with_jinja2();
  if (!python) return;
  const Session shows(with_own_template(model, *python));
  const auto lines = parse_jobs(thinks.dump());
  CHECK_THAT(
      shows.tokenizer().decode(prompt_of(std::get<Job>(lines.at(0).content), shows, false), false),
      Catch::Contains("assistant\nhmyes"));
}

}  // namespace dex
