// A shared library between a program and libc: it makes the k-th file operation under a directory
// fail, and records operations for a replay of power cuts. Linked into test programs, where these
// functions steer it; other programs get it by LD_PRELOAD, steered by the variables DEX_FAULT_ROOT,
// DEX_FAULT_CALL and DEX_FAULT_ERRNO.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dex::test {

// Counted are open, read, write, ftruncate, fsync, rename and mkdir, of paths under a root. The
// `number`-th from now fails with `error`; ENOSPC writes half and goes on failing, as a full disk
// does. At 0 none fails.
void fail_file_call(const std::filesystem::path& root, int number, int error);
struct FileFault {
  int calls = 0;  // counted ones so far
  bool failed = false;
  std::string call;  // "write /path", of the first that failed
};
FileFault stop_failing();

// The file system has no locks: flock() fails with `error` until this is called with 0. Other
// programs: the variable DEX_FAULT_LOCK.
void fail_locks(int error);

// From now on nothing is really synced: what tests do thousands of times need not wait for the
// disk.
void skip_syncs();

struct FileCall {
  enum Kind { open, write, resize, sync, close, rename, make_directory, remove, note } kind;
  std::string path, target;  // target of a rename; the text of a note
  // of open (when not a directory), write, resize and sync: the number of the opening
  int file = -1;
  bool truncates = false, creates = false;
  std::uint64_t offset = 0;  // of a write; the size of a resize
  std::string bytes;
};
void record_file_calls(const std::filesystem::path& root);
void note_in_record(const std::string& text);
std::vector<FileCall> stop_recording();

}  // namespace dex::test
