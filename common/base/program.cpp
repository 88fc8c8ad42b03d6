#include "common/base/program.h"

#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "common/base/error.h"

namespace dex {

int run_program(const char* name, const std::function<int()>& work) {
  // a file over the size limit is an error of the write, with its path
  std::signal(SIGXFSZ, SIG_IGN);
  const auto complain = [&](ExitCode code, const std::string& message) {
    // Messages of libtorch carry a stack trace behind their first line.
    std::cerr << name << ": error: " << message.substr(0, message.find('\n')) << "\n";
    return int(code);
  };
  try {
    const int code = work();
    require(std::cout.flush() && std::fflush(stdout) == 0, ExitCode::io,
            "the result cannot be written to stdout");
    return code;
  } catch (const Error& error) {
    return complain(error.code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(ExitCode::io, error.what());
  } catch (const nlohmann::json::exception& error) {
    return complain(ExitCode::io,
                    std::string("a JSON file holds another type than wanted: ") + error.what());
  } catch (const std::system_error& error) {
    return complain(ExitCode::temporary, std::string("the system refuses: ") + error.what());
  } catch (const std::exception& error) {
    return complain(ExitCode::bug, error.what());
  }
}

int number_argument(const char* name, const char* text, int least, int most) {
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  require(whole && number >= least && number <= most, ExitCode::usage,
          "{} is \"{}\", wanted a whole number, {} .. {}", name, text, least, most);
  return number;
}

}  // namespace dex
