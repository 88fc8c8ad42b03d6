#include "common/text/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/error.h"

extern char** environ;

namespace dex {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 31;  // of an answer

struct SpawnFiles {
  posix_spawn_file_actions_t actions;
  SpawnFiles() { posix_spawn_file_actions_init(&actions); }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions); }
};

// Signals are handled as in a fresh process, whatever this one blocks or ignores.
struct SpawnSignals {
  posix_spawnattr_t attributes;
  SpawnSignals() {
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSignals() { posix_spawnattr_destroy(&attributes); }
};

pid_t spawn(const std::string& python, const char* script, int end, int words) {
  SpawnFiles files;
  posix_spawn_file_actions_adddup2(&files.actions, end, 0);
  posix_spawn_file_actions_adddup2(&files.actions, end, 1);
  posix_spawn_file_actions_adddup2(&files.actions, words, 2);
  const SpawnSignals signals;
  std::array<const char*, 4> arguments{python.c_str(), "-c", script, nullptr};
  pid_t child = -1;
  const int error = posix_spawnp(&child, python.c_str(), &files.actions, &signals.attributes,
                                 const_cast<char* const*>(arguments.data()), environ);
  const bool later = error == EAGAIN || error == ENOMEM;  // no process to be had now
  require(error == 0, later ? ExitCode::temporary : ExitCode::usage, "{}: cannot be run: {}",
          python, std::strerror(error));
  return child;
}

}  // namespace

std::vector<std::string> python_choices(const std::string& option) {
  if (!option.empty()) return {option};
  if (const char* named = std::getenv("DEX_PYTHON"); named && *named) return {named};
  std::vector<std::string> choices;
  std::error_code error;
  const std::filesystem::path own = ".venv/bin/python";
  if (std::filesystem::exists(own, error)) choices.push_back(own.string());
  choices.push_back("python3");
  return choices;
}

PythonProcess::PythonProcess(const std::string& python, const char* script,
                             std::chrono::seconds deadline)
    : python_(python), deadline_(deadline) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, ExitCode::temporary,
          "no socket for Python: {}", std::strerror(errno));
  socket_ = ends[0];
  words_ = memfd_create("python", MFD_CLOEXEC);
  try {
    require(words_ >= 0, ExitCode::temporary, "no memory file for Python: {}",
            std::strerror(errno));
    child_ = spawn(python, script, ends[1], words_);
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    if (words_ >= 0) close(words_);
    throw;
  }
  close(ends[1]);
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

PythonProcess::~PythonProcess() {
  close(socket_);
  close(words_);
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

nlohmann::json PythonProcess::ask(const nlohmann::json& request) {
  const Time until = Clock::now() + deadline_;
  const std::string body = request.dump();
  std::string message(8, '\0');
  for (int i = 0; i < 8; ++i) message[std::size_t(i)] = char(std::uint64_t(body.size()) >> (8 * i));
  send(message + body, until);
  std::array<unsigned char, 8> head;
  receive(reinterpret_cast<char*>(head.data()), head.size(), until);
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | head[std::size_t(i)];
  require(size <= kMostBytes, ExitCode::temporary,
          "{}: answers {} bytes for a rendering, wanted at most {}{}", python_, size, kMostBytes,
          last_words());
  std::string answer(size, '\0');
  receive(answer.data(), answer.size(), until);
  try {
    return nlohmann::json::parse(answer);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::temporary, "{}: answers what is no JSON: {}{}", python_, error.what(),
         last_words());
  }
}

void PythonProcess::wait_for(short events, Time until) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd waited{socket_, events, 0};
    const int ready = left > 0 ? poll(&waited, 1, int(left)) : 0;
    if (ready > 0) return;
    require(ready != 0, ExitCode::temporary,
            "{}: has not rendered a conversation within {} s: does its template end?{}", python_,
            deadline_.count(), last_words());
    require(errno == EINTR, ExitCode::temporary, "{}: {}", python_, std::strerror(errno));
  }
}

void PythonProcess::send(std::string_view bytes, Time until) {
  while (!bytes.empty()) {
    // a signal for a closed socket would end this process
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(std::size_t(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLOUT, until);
    } else if (errno != EINTR) {
      report_end();
    }
  }
}

void PythonProcess::receive(char* bytes, std::size_t size, Time until) {
  while (size > 0) {
    const ssize_t read = recv(socket_, bytes, size, 0);
    if (read > 0) {
      bytes += read;
      size -= std::size_t(read);
    } else if (read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for(POLLIN, until);
    } else if (read == 0 || errno != EINTR) {
      report_end();
    }
  }
}

void PythonProcess::report_end() {
  require(child_ > 0, ExitCode::temporary, "{}: has ended", python_);
  int status = 0;
  // it may only have closed its end
  for (int waited = 0; waitpid(child_, &status, WNOHANG) == 0; ++waited) {
    if (waited == 100) kill(child_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  child_ = -1;
  const std::string how = WIFEXITED(status) ? fmt::format("with code {}", WEXITSTATUS(status))
                                            : fmt::format("by signal {}", WTERMSIG(status));
  fail(ExitCode::temporary, "{}: ended {} while it rendered a template{}", python_, how,
       last_words());
}

std::string PythonProcess::last_words() const {
  std::string text(4096, '\0');
  const off_t size = lseek(words_, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - off_t(text.size()));
  const ssize_t read = size > 0 ? pread(words_, text.data(), text.size(), from) : 0;
  text.resize(read > 0 ? std::size_t(read) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const auto line = text.rfind('\n');
  return text.empty() ? "" : ": " + text.substr(line == std::string::npos ? 0 : line + 1);
}

}  // namespace dex
