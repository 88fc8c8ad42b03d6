#include <fmt/ranges.h>

#include "common/base/error.h"
#include "decode/methods/ar.h"
#include "decode/methods/dex.h"
#include "decode/methods/lookup.h"
#include "decode/methods/method.h"

namespace dex {

Methods::Methods() {
  const auto options = std::make_shared<ExploreOptions>();
  methods_ = {dex_method(options), lookup_method(options), ar_method()};
}

DepthSet Method::depths(const DepthSet& explored) const {
  return explores ? explored : DepthSet({}, explored.num_layers());
}

const Method& Methods::named(const std::string& name, const std::string& said) const {
  std::vector<std::string> names;
  for (const Method& method : methods_) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  fail(ExitCode::usage, "{} \"{}\", wanted {}", said, name, fmt::join(names, " or "));
}

const Method& Methods::reference() const {
  for (const Method& method : methods_)
    if (method.is_reference) return method;
  fail(ExitCode::bug, "no method is the reference");
}

std::string Methods::described() const {
  std::vector<std::string> texts;
  for (const Method& method : methods_)
    texts.push_back(fmt::format("{} ({})", method.name, method.summary));
  return fmt::format("{}", fmt::join(texts, " or "));
}

void Methods::add_options(CLI::App& command) const {
  for (const Method& method : methods_) method.add_options(command);
}

void Methods::check(const DepthSet& depths) const {
  for (const Method& method : methods_) method.check(depths);
}

}  // namespace dex
