#include "train/ranks/ranks.h"

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/comm/gpu_link.h"

namespace dex {
namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::rows:
      return "hidden rows";
    case Kind::final_rows:
      return "final hidden rows";
    case Kind::sum:
      return "sum of gradients";
    case Kind::equations:
      return "equations of the closed-form start";
    case Kind::report:
      return "report of a step";
    case Kind::decision:
      return "decision on a step";
    case Kind::answers:
      return "answers of exits";
    case Kind::counts:
      return "counts of an evaluation";
    case Kind::state:
      return "weights and moments";
    case Kind::agree:
      return "agreement on the run";
    case Kind::times:
      return "times of decoding rounds";
    case Kind::alive:
      return "work of rank 0";
  }
  return "";
}

// stages_begin[p], so that the largest sum of layers of a position is least; the earliest such
// cuts.
std::vector<int> fold(const DepthSet& depths, int positions) {
  const int stages = depths.num_stages();
  const auto layers = [&](int begin, int end) {
    return depths.depth(end - 1) - (begin == 0 ? 0 : depths.depth(begin - 1));
  };
  // best[p][k]: least maximum for the first k stages on p positions
  std::vector<std::vector<int>> best(
      std::size_t(positions) + 1,
      std::vector<int>(std::size_t(stages) + 1, depths.num_layers() + 1));
  auto cut = best;
  best[0][0] = 0;
  for (int p = 1; p <= positions; ++p)
    for (int k = p; k <= stages; ++k)
      for (int from = p - 1; from < k; ++from) {
        const int most = std::max(best[p - 1][from], layers(from, k));
        int& known = best[p][k];
        if (most < known) known = most, cut[p][k] = from;
      }
  std::vector<int> begin(std::size_t(positions) + 1, stages);
  for (int p = positions; p > 0; --p) begin[p - 1] = cut[p][begin[p]];
  return begin;
}

}  // namespace

IndexRange share_of(std::int64_t count, const RankLayout& layout, int replica) {
  return {quotient_up(count * replica, layout.replicas()),
          quotient_up(count * (replica + 1), layout.replicas())};
}

RankLayout rank_layout(const DepthSet& depths, int world, int rank, int pipeline) {
  const int stages = depths.num_stages();
  if (pipeline == 0)
    for (pipeline = std::min(stages, world); world % pipeline != 0;) --pipeline;
  require(pipeline >= 1 && pipeline <= stages, ExitCode::usage,
          "--stages is {}, the depths {} make {} stages", pipeline, depths.text(), stages);
  require(world % pipeline == 0, ExitCode::usage,
          "--stages is {}, which does not divide the {} ranks", pipeline, world);
  return {
      .world = world, .rank = rank, .pipeline = pipeline, .first_stage = fold(depths, pipeline)};
}

std::vector<int> gpu_peers(const RankLayout& layout) {
  std::vector<int> peers;
  for (int rank = 0; rank < layout.world; ++rank) {
    const int replica = rank / layout.pipeline, position = rank % layout.pipeline;
    if (rank != layout.rank && (replica == layout.replica() || position == layout.pipeline_rank()))
      peers.push_back(rank);
  }
  return peers;
}

Ranks& one_rank() {
  static Ranks alone{RankLayout{}};
  return alone;
}

void Ranks::doing(Kind kind) {
  require(wire_ != nullptr, ExitCode::bug, "one rank has nobody to exchange {} with",
          name_of(kind));
  wire_->doing(fmt::format("step {}, {}", step_ + 1, name_of(kind)));
}

Bytes Ranks::take(Kind kind, int from) {
  doing(kind);
  auto& known = waiting_[{from, kind}];
  while (known.empty()) {
    Bytes message = wire_->receive(from);
    require(!message.empty(), ExitCode::bug, "an empty message from rank {}", from);
    const auto about = static_cast<Kind>(message.back());
    message.pop_back();
    waiting_[{from, about}].push_back(std::move(message));
  }
  Bytes message = std::move(known.front());
  known.pop_front();
  return message;
}

void Ranks::send(Kind kind, const at::Tensor& tensor, int to) {
  doing(kind);
  if (by_gpu_link(kind)) return tensors_->send(tensor, to);
  const at::Tensor whole = tensor.cpu().contiguous();
  Bytes message(whole.nbytes() + 1);
  std::memcpy(message.data(), whole.data_ptr(), whole.nbytes());
  message.back() = static_cast<std::byte>(kind);  // behind the values, which stay aligned
  wire_->send(std::move(message), to);
}

at::Tensor Ranks::receive(Kind kind, int from, at::IntArrayRef shape, at::ScalarType type) {
  if (by_gpu_link(kind)) {
    doing(kind);
    return tensors_->receive(from, shape, type);
  }
  const Bytes message = take(kind, from);
  at::Tensor tensor = at::empty(shape, type);
  require(tensor.nbytes() == message.size(), ExitCode::bug, "{} from rank {}: {} bytes, wanted {}",
          name_of(kind), from, message.size(), tensor.nbytes());
  std::memcpy(tensor.data_ptr(), message.data(), message.size());
  return tensor;
}

void Ranks::send(Kind kind, const std::string& text, int to) {
  send(kind, at::from_blob(const_cast<char*>(text.data()), {std::int64_t(text.size())}, at::kByte),
       to);
}

std::string Ranks::receive_text(Kind kind, int from) {
  const Bytes message = take(kind, from);
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

void Ranks::keep_alive() {
  if (!leads()) {
    receive_text(Kind::alive, 0);
    return;
  }
  for (int rank = 1; rank < layout_.world; ++rank) send(Kind::alive, std::string(), rank);
}

}  // namespace dex
