#include "common/comm/process_group.h"

#ifndef USE_C10D_GLOO  // libtorch's package defines both with CUDA, none without
#define USE_C10D_GLOO
#endif
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef DEX_WITH_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <cstdlib>

#include "common/base/error.h"

namespace dex {
namespace {

using Gloo = c10d::ProcessGroupGloo;

[[maybe_unused]] constexpr int kBlocks = 4;  // of a GPU, for a message of NCCL

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

void prepare_process_groups() {
  FLAGS_caffe2_log_level =
      2;  // errors: warnings of a lost connection carry a stack trace, and we say it ourselves
  // Else threads of theirs would end the process where a peer is lost, or keep it from ending; we
  // wait by our own clock and say who it was.
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*replace=*/1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32",
         /*replace=*/0);  // a queue for each group's work, or one waits for another
}

#ifdef DEX_WITH_CUDA
c10::intrusive_ptr<c10d::Backend> gpu_process_group(const RankEnvironment& place,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::string& name) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // A send holds its blocks until it is received: those of all peers must leave room for receives.
  options->config.maxCTAs = kBlocks;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>(name, store), place.rank, place.world, options);
}
#else
c10::intrusive_ptr<c10d::Backend> gpu_process_group(const RankEnvironment&,
                                                    const c10::intrusive_ptr<c10d::Store>&,
                                                    const std::string&) {
  fail(ExitCode::usage,
       "this program was built without CUDA, so its ranks have no GPUs to send from");
}
#endif

}  // namespace dex
