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

namespace dex {

int run_program(const char* name, const std::function<int()>& work) {
  // a file over the size limit is an error of the write, with its path
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = work();
    require(std::cout.flush() && std::fflush(stdout) == 0, ExitCode::io,
            "the result cannot be written to stdout");
    return code;
  } catch (const std::exception&) {
    const Error error = current_error();
    // Messages of libtorch carry a stack trace behind their first line.
    const std::string_view message = error.what();
    std::cerr << name << ": error: " << message.substr(0, message.find('\n')) << "\n";
    return int(error.code());
  }
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::filesystem::filesystem_error& error) {
    return {ExitCode::io, error.what()};
  } catch (const nlohmann::json::exception& error) {
    return {ExitCode::io,
            std::string("a JSON file holds another type than wanted: ") + error.what()};
  } catch (const std::system_error& error) {
    return {ExitCode::temporary, std::string("the system refuses: ") + error.what()};
  } catch (const std::exception& error) {
    return {ExitCode::bug, error.what()};
  } catch (...) {
    return {ExitCode::bug, "an unknown error"};
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
