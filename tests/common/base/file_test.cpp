#include "common/base/file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <iostream>

#include "common/base/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace fs = std::filesystem;
using dex::ExitCode;
using dex::test::check_refused;
using dex::test::TempDir;

namespace {

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// No file may grow over `bytes`: a full disk without one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit previous_{};
  void (*previous_handler_)(int);
};

}  // namespace

TEST_CASE("bytes come back as they were written") {
  const TempDir dir;
  const std::string bytes("a\0\r\n\xff", 5), large(2'000'003, 'y');
  dex::write_file(dir / "a", bytes);
  CHECK(dex::read_file(dir / "a") == bytes);
  dex::write_file(dir / "a", large);
  CHECK(dex::read_file(dir / "a") == large);
  dex::write_file(dir / "a", "");
  CHECK(dex::read_file(dir / "a").empty());
  const std::array<std::string_view, 3> pieces{"one ", "", "two"};
  dex::write_file(dir / "a", pieces);
  CHECK(dex::read_file(dir / "a") == "one two");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a"});
}

TEST_CASE("a write that runs out of space leaves the old bytes and no temporary") {
  const TempDir dir;
  dex::write_file(dir / "a", "old");
  {
    const FileSizeLimit limit(1000);
    check_refused(ExitCode::io, {(dir / "a").string(), "File too large"},
                  [&] { dex::write_file(dir / "a", std::string(5000, 'x')); });
    check_refused(ExitCode::io, {(dir / "b").string(), "File too large"},
                  [&] { dex::write_file(dir / "b", std::string(1'000'000, 'x')); });
    const std::vector<float> values(1000);
    check_refused(ExitCode::io, {(dir / "c.safetensors").string(), "File too large"}, [&] {
      dex::write_safetensors(
          dir / "c.safetensors",
          {{"a", {dex::StoredType::f32, {1000}, std::as_bytes(std::span(values))}}}, {});
    });
    dex::write_file(dir / "small", std::string(1000, 'x'));
  }
  CHECK(dex::read_file(dir / "a") == "old");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a", "small"});
}

TEST_CASE("a write where none is allowed names the path and leaves nothing") {
  const TempDir dir;
  check_refused(ExitCode::io, {"absent", "No such file or directory"},
                [&] { dex::write_file(dir / "absent" / "a", "x"); });
  dir.write("file", "x");
  check_refused(ExitCode::io, {"Not a directory"},
                [&] { dex::write_file(dir / "file" / "a", "x"); });
  fs::create_directories(dir / "taken" / "inside");
  check_refused(ExitCode::io, {"taken", "renamed"}, [&] { dex::write_file(dir / "taken", "x"); });
  CHECK(names_in(dir.path()) == std::vector<std::string>{"file", "taken"});
}

TEST_CASE("a closed directory is refused as such") {
  if (geteuid() == 0) {
    std::cout << "SKIPPED: root writes anywhere\n";
    return;
  }
  const TempDir dir;
  fs::create_directory(dir / "closed");
  fs::permissions(dir / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  check_refused(ExitCode::io, {"closed", "Permission denied"},
                [&] { dex::write_file(dir / "closed" / "a", "x"); });
  CHECK(names_in(dir / "closed").empty());
}

TEST_CASE("paths that are missing or no files are usage errors") {
  const TempDir dir;
  check_refused(ExitCode::usage, {"absent", "no such file"},
                [&] { dex::read_file(dir / "absent"); });
  check_refused(ExitCode::usage, {"not a file"}, [&] { dex::read_file(dir.path()); });
  check_refused(ExitCode::usage, {"not a file"}, [&] { dex::read_file("/dev/null"); });
}

TEST_CASE("a directory is made with its parents, and refused where a file stands") {
  const TempDir dir;
  dex::make_directory(dir / "a" / "b" / "c");
  CHECK(fs::is_directory(dir / "a" / "b" / "c"));
  dex::make_directory(dir / "a" / "b");
  dir.write("file", "x");
  check_refused(ExitCode::io, {"file"}, [&] { dex::make_directory(dir / "file"); });
  check_refused(ExitCode::io, {"file"}, [&] { dex::make_directory(dir / "file" / "below"); });
}

TEST_CASE("a durable rename replaces a file and names both ends when it cannot") {
  const TempDir dir;
  dir.write("from", "new");
  dir.write("to", "old");
  dex::rename_durably(dir / "from", dir / "to");
  CHECK(dex::read_file(dir / "to") == "new");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"to"});
  check_refused(ExitCode::io, {"from", "to", "No such file"},
                [&] { dex::rename_durably(dir / "from", dir / "to"); });
}

TEST_CASE("a directory takes another's place whole") {
  const dex::test::TempDir dir;
  for (const char* content : {"one", "two"}) {
    dex::make_directory(dir / "new");
    dex::write_file(dir / "new" / content, content);
    dex::replace_directory(dir / "new", dir / "kept");
    CHECK(dex::read_file(dir / "kept" / content) == content);
    CHECK_FALSE(std::filesystem::exists(dir / "new"));
  }
  CHECK_FALSE(std::filesystem::exists(dir / "kept" / "one"));
}

TEST_CASE(
    "what is appended stands behind what was there, and a failed append leaves the file as long as "
    "before") {
  const TempDir dir;
  dex::append_file(dir / "log", "one\n");
  dex::append_file(dir / "log", "two\n");
  CHECK(dex::read_file(dir / "log") == "one\ntwo\n");
  {
    const FileSizeLimit limit(100);
    check_refused(ExitCode::io, {(dir / "log").string(), "File too large"},
                  [&] { dex::append_file(dir / "log", std::string(200, 'x')); });
  }
  CHECK(dex::read_file(dir / "log") == "one\ntwo\n");
  check_refused(ExitCode::io, {"absent"}, [&] { dex::append_file(dir / "absent/log", "x"); });
}

TEST_CASE("temporaries of one path are removed and nothing else") {
  const TempDir dir;
  for (const char* name : {"a", "a.tmp-1", "a.tmp-23456", "a.tmp", "b.tmp-1", "aa.tmp-1"})
    dir.write(name, "x");
  dex::remove_temporaries(dir / "a");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"a", "a.tmp", "aa.tmp-1", "b.tmp-1"});
  dex::remove_temporaries(dir / "absent/a");
}
