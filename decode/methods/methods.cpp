#include <fmt/ranges.h>

#include "common/base/error.h"
#include "decode/methods/ar.h"
#include "decode/methods/dex.h"
#include "decode/methods/lookup.h"
#include "decode/methods/method.h"

namespace dex {

Methods::Methods() {
  const auto options = std::make_shared<ExploreOptions>();
  methods_ = {dex_method(options), lookup_method(options), ar_method(options)};
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

const Method& Methods::fastest(const Session& session, std::string& why) const {
  for (const Method& method : methods_)
    if (const std::string option = method.asked_by(); !option.empty()) {
      why = fmt::format("{} ({}), as {} is given", method.name, method.summary, option);
      return method;
    }
  const Method* best = &reference();
  double least = 0;
  std::vector<std::string> told;
  for (const Method& method : methods_) {
    const auto seconds = method.estimate(session);
    if (!seconds) continue;
    told.push_back(fmt::format("{} {:.1f}", method.name, 1e3 * *seconds));
    if (told.size() > 1 && *seconds >= least) continue;
    best = &method, least = *seconds;
  }
  why = fmt::format("{} ({}): estimated ms a token here: {}; --method forces one", best->name,
                    best->summary, fmt::join(told, ", "));
  return *best;
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
