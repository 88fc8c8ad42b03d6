// Programs started with an environment of their own, waited for with a deadline.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace dex::test {

class Process {
 public:
  // Both streams go to the file `log`.
  Process(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
          std::filesystem::path log)
      : log_(std::move(log)) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (!std::freopen(log_.c_str(), "w", stdout) || dup2(1, 2) < 0) _exit(126);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~Process() {
    if (code_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { kill(pid_, number); }

  // The exit code (128 + n after signal n), or nothing when it still runs after so many seconds.
  std::optional<int> wait(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!code_) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_)
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      else if (std::chrono::steady_clock::now() > end)
        return std::nullopt;
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return code_;
  }

  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
  std::optional<int> code_;
};

}  // namespace dex::test
