// The ways to decode, by name. A method is one file that makes a Method, and a line in methods.cpp.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/explore/depth_set.h"
#include "decode/decoder.h"

namespace CLI {
class App;
}

namespace dex {

class Session;

struct Method {
  std::string name, summary;
  bool is_reference = false;  // plain decoding, which all others are compared with
  bool explores = false;      // takes an explorer for each depth of the set; others have one

  // All three are there. The values of a method's options live as long as the method.
  std::function<void(CLI::App&)> add_options = [](CLI::App&) {};
  // Error(usage) when the options cannot be: before weights are read, whatever method is chosen.
  std::function<void(const DepthSet&)> check = [](const DepthSet&) {};
  std::function<std::unique_ptr<Decoder>(const Session&)> make;
  // For choosing where none is named. An option that means this method alone and was given; else
  // seconds a token by what rounds cost here, none where it cannot be.
  std::function<std::string()> asked_by = [] { return std::string(); };
  std::function<std::optional<double>(const Session&)> estimate = [](const Session&) {
    return std::optional<double>();
  };

  // Whose exits its tokens are counted by.
  DepthSet depths(const DepthSet& explored) const;
};

class Methods {
 public:
  Methods();  // all there are, with their default options
  explicit Methods(std::vector<Method> methods) : methods_(std::move(methods)) {}

  const std::vector<Method>& all() const { return methods_; }
  // Error(usage) with what was `said`, such as "--method is", the name and the methods there are.
  const Method& named(const std::string& name, const std::string& said) const;
  const Method& reference() const;
  // The one that was asked for by its options, else the quickest by their estimates; `why` becomes
  // what to tell of it.
  const Method& fastest(const Session& session, std::string& why) const;
  std::string described() const;  // "dex (depth exploration) or ar (plain decoding)"

  void add_options(CLI::App& command) const;
  void check(const DepthSet& depths) const;

 private:
  std::vector<Method> methods_;
};

}  // namespace dex
