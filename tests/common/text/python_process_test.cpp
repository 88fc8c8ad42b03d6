#include "common/text/python_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/error.h"
#include "common/text/chat_template.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/python.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_faults.h"

using namespace dex;
using nlohmann::json;

namespace {

constexpr std::chrono::seconds kLong{60}, kShort{2};

// Reads a request, then does `then`.
std::string script(const std::string& then) {
  return "import os, sys, time\n"
         "def read():\n"
         "    size = int.from_bytes(sys.stdin.buffer.read(8), 'little')\n"
         "    return sys.stdin.buffer.read(size)\n"
         "def write(body):\n"
         "    sys.stdout.buffer.write(len(body).to_bytes(8, 'little') + body)\n"
         "    sys.stdout.buffer.flush()\n" +
         then;
}

std::string failure(const std::string& then, std::chrono::seconds deadline = kLong) {
  const std::string text = script(then);
  PythonProcess python("python3", text.c_str(), deadline);
  try {
    python.ask({{"x", 1}});
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::temporary);
    // of no use after that, and no harm
    CHECK_THROWS_AS(python.ask({{"x", 1}}), Error);
    return error.what();
  }
  return "no error";
}

struct Stat {
  std::string state;
  long ticks = 0;  // of its own work, a hundredth of a second each
};
Stat stat_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string word;
  Stat stat;
  file >> word >> word >> stat.state;
  for (int i = 0; i < 10; ++i) file >> word;
  file >> stat.ticks;
  return stat;
}
bool runs(pid_t process) {
  const std::string state = stat_of(process).state;
  return !state.empty() && state != "Z" && state != "X";
}

// A Python process that tells its number.
class Named {
 public:
  std::string script(const std::string& then) const {
    return "import os\nopen('" + file_ + ".new', 'w').write(str(os.getpid()))\nos.rename('" +
           file_ + ".new', '" + file_ + "')\n" + then;
  }
  pid_t number() const {  // waits for it
    for (int i = 0; i < 4000 && !std::filesystem::exists(file_); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pid_t process = 0;
    std::ifstream(file_) >> process;
    return process;
  }
  // Until it has ended, or so many seconds are over; returns whether it has.
  bool ends_within(double seconds) const {
    const pid_t process = number();
    REQUIRE(process > 0);
    for (int i = 0; i < int(100 * seconds) && runs(process); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !runs(process);
  }

 private:
  test::TempDir dir_;
  std::string file_ = (dir_.path() / "pid").string();
};

}  // namespace

TEST_CASE("a Python process answers what it is asked, large or small") {
  const std::string echo = script("while True:\n    write(read())\n");
  PythonProcess python("python3", echo.c_str(), kLong);
  for (const std::size_t size : {0, 1, 1000, 5'000'000}) {
    const json asked = {{"text", std::string(size, 'x')}, {"more", {1, 2, 3}}};
    CHECK(python.ask(asked) == asked);
  }
}

TEST_CASE("a Python process that dies says how, and with what last words") {
  CHECK_THAT(failure("read()\nsys.exit(3)\n"), Catch::Contains("ended with code 3"));
  CHECK_THAT(failure("read()\nraise ValueError('so it went')\n"),
             Catch::Contains("code 1") && Catch::Contains("so it went"));
  CHECK_THAT(failure("read()\nos.kill(os.getpid(), 9)\n"), Catch::Contains("by signal 9"));
  CHECK_THAT(failure("sys.exit(0)\n"), Catch::Contains("ended with code 0"));
  CHECK_THAT(failure("read()\nsys.stdout.buffer.write(b'12')\n"), Catch::Contains("ended"));
}

TEST_CASE("a Python process that does not answer is given up") {
  CHECK_THAT(failure("read()\ntime.sleep(100)\n", kShort), Catch::Contains("within 2 s"));
  CHECK_THAT(failure("time.sleep(100)\n", kShort), Catch::Contains("within 2 s"));
}

TEST_CASE("what is no answer is refused") {
  CHECK_THAT(failure("read()\nwrite(b'{oops')\n"), Catch::Contains("no JSON"));
  CHECK_THAT(failure("read()\nprint('hello, this is no length', flush=True)\ntime.sleep(100)\n"),
             Catch::Contains("bytes for a rendering"));
}

TEST_CASE("a Python that is none is refused with its name") {
  CHECK_THROWS_WITH(PythonProcess("/no/such/python", "", kLong),
                    Catch::Contains("/no/such/python") && Catch::Contains("cannot be run"));
}

TEST_CASE("a Python process ends with its parent, even one that is killed") {
  const Named named;
  const std::string waits = named.script(script("read()\nsys.stdin.buffer.read(1)\n"));
  const int code = test::code_in_child([&] {
    PythonProcess python("python3", waits.c_str(), kLong);
    named.number();
    kill(getpid(), SIGKILL);
    return 0;
  });
  CHECK(code == 1000 + SIGKILL);
  CHECK(named.ends_within(20));
}

TEST_CASE("a template that never ends goes with the process that asked, even one that is killed",
          "[timing]") {
  const auto with_jinja2 = test::python_with_jinja2();
  if (!with_jinja2) return;
  const Named named;
  const std::string renders = named.script(kRenderTemplate);
  const int code = test::code_in_child([&] {
    PythonProcess python(*with_jinja2, renders.c_str(), kLong);
    const std::string loop = "{% for i in range(99999) %}";
    python.ask({{"template", loop + loop + "{% endfor %}{% endfor %}"},
                {"sees", json::object()},
                {"now", 0},
                {"memory", std::int64_t{1} << 32},
                {"seconds", 65}});
    std::thread([&] { python.ask({{{"messages", json::array()}, {"open", false}}}); }).detach();
    for (const long before = stat_of(named.number()).ticks;
         stat_of(named.number()).ticks < before + 20;)  // it renders
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(getpid(), SIGKILL);
    return 0;
  });
  CHECK(code == 1000 + SIGKILL);
  CHECK(named.ends_within(12));  // a busy machine; the alarm is at 65
}

TEST_CASE("a Python that cannot be had for want of processes may be had later") {
  const test::TempDir dir;
  dir.write("tokenizer_config.json", json{{"chat_template", "{{ 'none of ours' }}"}}.dump());
  test::give_threads(0);
  const auto error = test::error_of([&] { ChatTemplate::of_model(dir.path()); });
  test::give_threads(-1);
  REQUIRE(error);
  CHECK(error->code() == ExitCode::temporary);
  CHECK_THAT(error->what(), Catch::Contains("cannot be run: Resource temporarily unavailable"));
}

TEST_CASE("which Python is tried") {
  CHECK(python_choices("/a/python") == std::vector<std::string>{"/a/python"});
  const char* named = std::getenv("DEX_PYTHON");
  const std::string before = named ? named : "";
  setenv("DEX_PYTHON", "/b/python", 1);
  CHECK(python_choices("") == std::vector<std::string>{"/b/python"});
  CHECK(python_choices("/a/python") == std::vector<std::string>{"/a/python"});
  unsetenv("DEX_PYTHON");
  CHECK(python_choices("").back() == "python3");
  if (named) setenv("DEX_PYTHON", before.c_str(), 1);
}
