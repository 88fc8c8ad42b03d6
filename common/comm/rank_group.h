// A process as a rank among the processes of a run: from the launcher's environment, over meeting
// the others, to the leave that all take of each other. A process alone is a rank, too.
#pragma once
#include <memory>
#include <vector>

#include "common/comm/rank_environment.h"
#include "common/comm/transport.h"

namespace c10 {
struct Device;
}

namespace dex {

class C10dTransport;
class GpuLink;

class RankGroup {
 public:
  // This process, as its launcher says. To be made before there are threads. Error(usage) as in
  // rank_environment().
  RankGroup();
  explicit RankGroup(RankEnvironment environment);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;

  const RankEnvironment& environment() const { return environment_; }
  bool alone() const { return environment_.world == 1; }

  // What this rank does before it joins. An error of it ends the others, too, which wait for it.
  template <typename Work>
  void prepare(const Work& work) {
    try {
      work();
    } catch (...) {
      refuse();
      throw;
    }
  }

  // Meets all other ranks. Ranks but the first log warnings only from here on. Error(temporary)
  // within `deadline` seconds naming the ranks that are missing. The deadline then holds for every
  // wait for a peer, until set_deadline() gives another.
  void join(double deadline);
  void set_deadline(double seconds);

  Transport* transport();  // null where the rank is alone

  // Links between GPUs, beside the transport and as long as this group. All ranks call it, naming
  // each other as peers. Error(usage) in a build without CUDA.
  GpuLink& connect_gpus(const c10::Device& device, const std::vector<int>& peers);

  // What the ranks do together. An error of one ends all with its code and message. When `work` is
  // done, no rank leaves before all are done, so that none is missed.
  template <typename Work>
  auto run(const Work& work) {
    try {
      auto result = work();
      leave();
      return result;
    } catch (...) {
      tell_peers();
      throw;
    }
  }

 private:
  void leave();
  // of the exception that is being handled
  void tell_peers() noexcept;
  void refuse() noexcept;

  RankEnvironment environment_;
  std::unique_ptr<C10dTransport> transport_;
  std::shared_ptr<GpuLink> gpu_link_;
};

}  // namespace dex
