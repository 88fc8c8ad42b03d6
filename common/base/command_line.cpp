#include "common/base/command_line.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <map>

#include "common/base/error.h"

namespace dex {
namespace {

std::string trimmed(std::string text) {
  constexpr const char* kSpace = " \t\r";
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  text.erase(text.find_last_not_of(kSpace) + 1);
  return text;
}

// CLI11 asks this for the values of a file once it has read the command line, so the command is
// known.
class OptionFile : public CLI::Config {
 public:
  explicit OptionFile(CLI::App& program) : program_(program) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& file) const override {
    const CLI::App& command = *program_.get_subcommands().at(0);
    const auto path = program_.get_config_ptr()->as<std::string>();
    std::vector<CLI::ConfigItem> items;
    std::map<std::string, int> seen;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      line = trimmed(line);
      if (line.empty() || line.front() == '#') continue;
      const std::size_t equals = line.find('=');
      const std::string key = trimmed(line.substr(0, equals)),
                        value = equals == line.npos ? "" : trimmed(line.substr(equals + 1));
      require(!key.empty() && !value.empty(), ExitCode::usage,
              "{} line {}: \"{}\", wanted option = value", path, number, line);
      const CLI::Option* option = command.get_option_no_throw("--" + key);
      require(option && option->get_configurable(), ExitCode::usage,
              "{} line {}: \"{}\" is no option of dex {}", path, number, key, command.get_name());
      const auto [before, fresh] = seen.emplace(key, number);
      require(fresh, ExitCode::usage, "{} line {}: \"{}\" stands in line {}, too", path, number,
              key, before->second);
      items.push_back({{command.get_name()}, key, {value}});
    }
    return items;
  }
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

 private:
  CLI::App& program_;
};

// What is wrong with the text, or nothing; CLI11 finds what is no number at all.
template <typename Number>
std::string misfit(const std::string& text) {
  using Limits = std::numeric_limits<Number>;
  Number value;
  const bool sign = std::is_unsigned_v<Number> && text.starts_with('-');
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!sign && end.ec != std::errc::result_out_of_range) return "";
  return fmt::format("{}, wanted {} .. {}", text, Limits::min(), Limits::max());
}

}  // namespace

std::string command_line_of(const CLI::App& command) {
  std::string line;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    std::string value = option->get_default_str();
    if (option->count() > 0) value = CLI::detail::join(option->results(), ",");
    if (value.empty()) continue;
    if (!line.empty()) line += ' ';
    line += "--" + option->get_lnames().front();
    if (option->get_expected_max() > 0) line += ' ' + value;
  }
  return line;
}

void check_whole_numbers(CLI::App& program) {
  for (CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : command->get_options()) {
      if (option->get_type_name() == "INT") option->check(misfit<std::int64_t>, "");
      if (option->get_type_name() == "UINT") option->check(misfit<std::uint64_t>, "");
    }
}

void add_config_option(CLI::App& program) {
  program.set_config(
      "--config", "",
      "Options of the command from a file, lines option = value; the command line goes before it");
  program.config_formatter(std::make_shared<OptionFile>(program));
}

}  // namespace dex
