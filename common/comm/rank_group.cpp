#include "common/comm/rank_group.h"

#include <c10/util/Logging.h>

#include <utility>

#include "common/base/log.h"
#include "common/base/program.h"
#include "common/comm/c10d_transport.h"
#include "common/comm/gpu_link.h"
#include "common/comm/nccl.h"
#include "common/comm/rendezvous.h"

namespace dex {
namespace {

RankEnvironment own_environment() {
  try {
    return rank_environment();
  } catch (const Error& error) {
    if (const auto place = meeting_place()) Rendezvous::refuse(*place, error.code(), error.what());
    throw;
  }
}

}  // namespace

RankGroup::RankGroup() : RankGroup(own_environment()) {}

RankGroup::RankGroup(RankEnvironment environment) : environment_(std::move(environment)) {
  // libtorch logs errors only: its warnings of a lost connection carry a stack trace, and we tell
  // of the loss ourselves.
  FLAGS_caffe2_log_level = 2;
  prepare_nccl();
}

RankGroup::~RankGroup() = default;

void RankGroup::join(double deadline) {
  if (alone()) return;
  const RankEnvironment& e = environment_;
  spdlog::info("rank {} of {}, as {} says; meeting at {}:{}", e.rank, e.world, e.source, e.address,
               e.port);
  transport_ = C10dTransport::join(e, deadline);
  if (e.rank > 0 && spdlog::get_level() < spdlog::level::warn)
    spdlog::set_level(spdlog::level::warn);
}

void RankGroup::set_deadline(double seconds) {
  if (transport_) transport_->set_deadline(seconds);
}

Transport* RankGroup::transport() { return transport_.get(); }

GpuLink& RankGroup::connect_gpus(const c10::Device& device, const std::vector<int>& peers) {
  gpu_link_ = transport_->connect_gpus(device, peers);
  return *gpu_link_;
}

void RankGroup::leave() {
  if (transport_) transport_->finish();
}

void RankGroup::tell_peers() noexcept {
  if (!transport_) return;
  const Error error = current_error();
  transport_->abort(error.what(), error.code());
}

void RankGroup::refuse() noexcept {
  if (alone()) return;
  const Error error = current_error();
  Rendezvous::refuse(environment_, error.code(), error.what());
}

}  // namespace dex
