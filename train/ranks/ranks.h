// The ranks of a training run: which share of the work each has, and the messages between them. A
// rank is a pipeline rank of a replica: rank = replica * pipeline + position. One rank alone is the
// same code without a wire.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/comm/transport.h"
#include "common/explore/depth_set.h"
#include "common/model/model.h"

namespace dex {

class GpuLink;

struct RankLayout {
  // `pipeline` ranks share the layers of each replica of the model
  int world = 1, rank = 0, pipeline = 1;
  std::vector<int>
      first_stage;  // position p has the stages [first_stage[p], first_stage[p+1]) of the depth set

  int replicas() const { return world / pipeline; }
  int replica() const { return rank / pipeline; }
  int pipeline_rank() const { return rank % pipeline; }
  int rank_at(int replica, int position) const { return replica * pipeline + position; }
  StageShare stages(int position) const {
    return {first_stage.at(position), first_stage.at(position + 1)};
  }
  int first_exit(int position) const {
    return std::min(first_stage.at(position), first_stage.back() - 1);
  }
  int exits(int position) const {
    return first_exit(position + 1) - first_exit(position);
  }  // non-final depths there
  StageShare stages() const { return stages(pipeline_rank()); }
  // Passes a rank has begun when it finishes one. The rank behind is one less ahead; one more than
  // that hides the way between them.
  int passes_ahead(int at) const { return pipeline - at + (pipeline > 1 ? 1 : 0); }
};

struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The share of `count` things that a replica has: neighbours; the first replica has as many as any.
IndexRange share_of(std::int64_t count, const RankLayout& layout, int replica);

inline std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// K stages fold in order onto `pipeline` positions so that the most layers on one are as few as can
// be. 0: the largest divisor of the world size that is at most K. Error(usage) when it does not
// divide the world or exceeds K.
RankLayout rank_layout(const DepthSet& depths, int world, int rank, int pipeline = 0);

// The ranks that a rank exchanges hidden rows and gradients with, by GPU link where there is one.
std::vector<int> gpu_peers(const RankLayout& layout);

// What a message is about. Messages of one kind between two ranks arrive in order; kinds do not
// wait for each other. Of the first three, which are large, one at most goes each way between two
// ranks.
enum class Kind : std::uint8_t {
  rows,
  final_rows,
  sum,
  equations,
  report,
  decision,
  answers,
  counts,
  state,
  agree,
  times,
  alive
};

class Ranks {
 public:
  explicit Ranks(RankLayout layout, Transport* wire = nullptr)
      : layout_(std::move(layout)), wire_(wire) {}

  // For messages of the first three kinds from now on: they arrive on its device, all others on the
  // CPU. All ranks.
  void use_gpu_link(GpuLink& tensors) { tensors_ = &tensors; }

  const RankLayout& layout() const { return layout_; }
  bool alone() const { return layout_.world == 1; }
  bool leads() const { return layout_.rank == 0; }  // writes files, decides, reports
  bool first() const { return layout_.pipeline_rank() == 0; }
  bool last() const { return layout_.pipeline_rank() == layout_.pipeline - 1; }

  void at(std::int64_t step) { step_ = step; }  // for messages of errors

  // which must not change until it was received
  void send(Kind kind, const at::Tensor& tensor, int to);
  at::Tensor receive(Kind kind, int from, at::IntArrayRef shape,
                     at::ScalarType type = at::kFloat);  // of these sizes: Error(bug)
  void send(Kind kind, const std::string& text, int to);
  std::string receive_text(Kind kind, int from);

  // The others wait for the leading rank's long work: it tells them now and then that it goes on.
  void keep_alive();

 private:
  Bytes take(Kind kind, int from);
  bool by_gpu_link(Kind kind) const { return tensors_ && kind <= Kind::sum; }
  void doing(Kind kind);

  RankLayout layout_;
  Transport* wire_;
  GpuLink* tensors_ = nullptr;
  std::int64_t step_ = 0;
  std::map<std::pair<int, Kind>, std::deque<Bytes>> waiting_;  // came before it was asked for
};

Ranks& one_rank();  // nobody else; its layout says nothing of stages

}  // namespace dex
