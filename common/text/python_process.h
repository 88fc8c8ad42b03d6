// A Python process that renders one chat template, fed through a socket.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dex {

extern const char kRenderTemplate[];  // the text of render_template.py

// Pythons to try, in this order: `option` alone where it is given, else DEX_PYTHON alone where that
// is set, else .venv/bin/python of the current directory and python3 of the search path.
std::vector<std::string> python_choices(const std::string& option);

// Ends when this object does, and by itself when its parent dies. One request at a time.
class PythonProcess {
 public:
  // Error(usage) when `python` cannot be run, Error(temporary) when nothing can, for want of
  // processes or memory.
  PythonProcess(const std::string& python, const char* script, std::chrono::seconds deadline);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // The answer to a request. Error(temporary) when the process has died, gives no answer within the
  // deadline, or answers something else than JSON; it is of no use after that.
  nlohmann::json ask(const nlohmann::json& request);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void wait_for(short events, Time until);
  void send(std::string_view bytes, Time until);
  void receive(char* bytes, std::size_t size, Time until);
  [[noreturn]] void report_end();
  std::string last_words() const;

  std::string python_;
  std::chrono::seconds deadline_;
  pid_t child_ = -1;
  int socket_ = -1, words_ = -1;  // words: what it wrote to its standard error
};

}  // namespace dex
