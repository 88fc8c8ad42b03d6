// The Python that renders templates in tests, where there is one.
#pragma once
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

namespace dex::test {

inline bool python_can(const std::string& python, const std::string& statement) {
  const std::string command = "'" + python + "' -c '" + statement + "' >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

// Of DEX_PYTHON, the tree's .venv and python3 the first that has jinja2. Else says that the test is
// skipped.
inline std::optional<std::string> python_with_jinja2() {
  static const std::string found = [] {
    const char* named = std::getenv("DEX_PYTHON");
    for (const std::string& python :
         {std::string(named ? named : ""), std::string(DEX_SOURCE_DIR) + "/.venv/bin/python",
          std::string("python3")})
      if (!python.empty() &&
          python_can(python, "import jinja2; assert jinja2.__version__ >= \"3.1.6\""))
        return python;
    return std::string();
  }();
  if (!found.empty()) return found;
  std::cout << "SKIPPED: no Python here has jinja2; launch/setup installs it in .venv\n";
  return std::nullopt;
}

}  // namespace dex::test
