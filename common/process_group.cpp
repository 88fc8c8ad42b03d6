#include "common/process_group.h"

#ifndef USE_C10D_GLOO  // libtorch's package defines both with CUDA, none without
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef DEX_WITH_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <cstdlib>

#include "common/error.h"

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

c10::intrusive_ptr<c10d::Backend> connect_process_group(const RankEnvironment& place,
                                                        const c10::intrusive_ptr<c10d::Store>& store,
                                                        std::chrono::milliseconds timeout) {
  return c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), place.rank,
                                   place.world, gloo_options(place, timeout));
}

#ifdef DEX_WITH_CUDA
c10::intrusive_ptr<c10d::Backend> gpu_process_group(const RankEnvironment& place,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::string& name) {
  // Its watchdog would end the process where a peer is lost or slow; we wait by our own clock and say who it was.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*replace=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*replace=*/0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::hours(24 * 365);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                     place.rank, place.world, options);
}
#else
c10::intrusive_ptr<c10d::Backend> gpu_process_group(const RankEnvironment&,
                                                    const c10::intrusive_ptr<c10d::Store>&, const std::string&) {
  fail(ExitCode::usage, "this program was built without CUDA, so its ranks have no GPUs to send from");
}
#endif

}  // namespace dex
