#include "common/base/directory_lock.h"

#include <catch2/catch.hpp>
#include <cerrno>

#include "tests/support/errors.h"
#include "tests/support/file_faults.h"
#include "tests/support/temp_dir.h"

using namespace dex;

TEST_CASE("a directory is one run's as long as the lock lives") {
  const test::TempDir dir;
  {
    const DirectoryLock lock(dir.path());
    for (const bool needed : {true, false})
      test::check_refused(ExitCode::temporary, {dir.path().string(), "another run uses it"},
                          [&] { DirectoryLock(dir.path(), needed); });
  }
  CHECK_NOTHROW(DirectoryLock(dir.path()));
  test::check_refused(ExitCode::io, {"absent", "No such file"},
                      [&] { DirectoryLock(dir / "absent"); });
}

TEST_CASE("a file system without locks is told as that, with the ways on") {
  const test::TempDir dir;
  struct Case {
    int error;
    const char* words;
  };
  for (const Case& c : {Case{ENOLCK, "No locks available"},
                        {ENOSYS, "Function not implemented"},
                        {EOPNOTSUPP, "Operation not supported"},
                        {EINVAL, "Invalid argument"},
                        {524, "operation not supported (524)"}}) {
    test::fail_locks(c.error);
    const auto error = test::error_of([&] { DirectoryLock(dir.path()); });
    CHECK_FALSE(test::error_of([&] { DirectoryLock(dir.path(), /*needed=*/false); }));
    test::fail_locks(0);
    REQUIRE(error);
    const std::string text = error->what();
    INFO(text);
    CHECK(error->code() == ExitCode::io);
    for (const char* words : {c.words, "gives no lock", "another file system", "--allow-unlocked"})
      CHECK(text.find(words) != text.npos);
    CHECK(text.find("another run uses it") == text.npos);
  }
}
