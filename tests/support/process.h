// Processes of the program, started together as the ranks of a run are, watched and killed.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/file.h"

namespace dex::test {

using Command = std::vector<std::string>;  // "NAME=value" in front sets variables

class Process {
 public:
  // Its stdout and stderr go to `log`.
  Process(const Command& command, const std::filesystem::path& log) : pid_(fork()), log_(log) {
    if (pid_ != 0) return;
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) {
      if (words.empty() && word.find('=') != std::string::npos)
        putenv(const_cast<char*>(word.c_str()));
      else
        words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Process() {
    if (!ended_) send(SIGKILL), wait();
  }
  Process(Process&& other) noexcept
      : pid_(other.pid_),
        log_(other.log_),
        ended_(std::exchange(other.ended_, true)),
        status_(other.status_) {}
  Process& operator=(Process&&) = delete;

  void send(int signal) const {
    if (!ended_) kill(pid_, signal);
  }
  bool ended() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }
  // Its exit code, or 1000 + the signal that ended it.
  int wait() {
    if (!ended_) waitpid(pid_, &status_, 0);
    ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  // The same, or nothing when it still runs after so many seconds.
  std::optional<int> wait(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (; !ended(); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (std::chrono::steady_clock::now() > end) return std::nullopt;
    return wait();
  }
  std::string log() const { return read_file(log_); }

  // Waits until it has mapped a file of that name; false where it ends without.
  bool wait_until_mapped(const std::string& name) {
    while (!ended()) {
      std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
      for (std::string line; std::getline(maps, line);)
        if (line.ends_with("/" + name)) return true;
    }
    return false;
  }

  // Waits until a signal no longer ends the process unasked: it is held back, caught or ignored.
  void wait_until_prepared_for(int signal) {
    namespace fs = std::filesystem;
    std::error_code none;
    while (!ended()) {
      if (fs::read_symlink("/proc/" + std::to_string(pid_) + "/exe", none) ==
          fs::read_symlink("/proc/self/exe"))
        continue;  // not yet exec'd
      std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
      unsigned long long mask = 0;
      for (std::string word; status >> word;)
        if ((word == "SigBlk:" || word == "SigIgn:" || word == "SigCgt:") &&
            status >> std::hex >> mask && (mask >> (signal - 1) & 1))
          return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  pid_t pid_;
  std::filesystem::path log_;
  bool ended_ = false;
  int status_ = 0;
};

// All of them, each with a log of its own: dir/log-0, ...
inline std::vector<Process> start_all(const std::vector<Command>& commands,
                                      const std::filesystem::path& dir) {
  std::vector<Process> processes;
  for (std::size_t i = 0; i < commands.size(); ++i)
    processes.emplace_back(commands[i], dir / ("log-" + std::to_string(i)));
  return processes;
}

// Waits for that long, or until all have ended, which is then true.
inline bool all_ended_within(std::vector<Process>& processes, std::chrono::duration<double> time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    bool all = true;
    for (Process& process : processes) all = process.ended() && all;
    if (all || std::chrono::steady_clock::now() >= end) return all;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace dex::test
