#include "common/comm/process_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

namespace dex {
namespace {

using Gloo = c10d::ProcessGroupGloo;

c10::intrusive_ptr<Gloo::Options> gloo_options(const RankEnvironment& place,
                                               std::chrono::milliseconds timeout) {
  const bool local = place.address == "localhost" || place.address.rfind("127.", 0) == 0;
  if (!local || std::getenv("GLOO_SOCKET_IFNAME")) return Gloo::Options::create_default(timeout);
  // The machine's own name may lead to an interface that does not reach itself.
  auto options = Gloo::Options::create(timeout);
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  return options;
}

}  // namespace

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

c10::intrusive_ptr<c10d::Backend> connect_process_group(
    const RankEnvironment& place, const c10::intrusive_ptr<c10d::Store>& store,
    std::chrono::milliseconds timeout) {
  return c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                   place.rank, place.world, gloo_options(place, timeout));
}

}  // namespace dex
