// Ranks as processes, on one machine or many: libtorch's TCPStore to meet, its ProcessGroupGloo to
// send. Every wait has our deadline, never the library's.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/comm/rank_environment.h"
#include "common/comm/transport.h"

namespace dex {

class GpuLink;

class C10dTransport final : public Transport {
 public:
  // Meets all other ranks. Error(temporary) within `deadline` seconds naming the ranks that are
  // missing, at once when the port is in use. The deadline holds for receive() until set_deadline()
  // gives another.
  static std::unique_ptr<C10dTransport> join(const RankEnvironment& place, double deadline);
  ~C10dTransport() override;

  int rank() const override;
  int size() const override;
  void send(Bytes message, int to) override;
  Bytes receive(int from) override;
  void abort(const std::string& reason, ExitCode code) noexcept override;
  void doing(const std::string& what) override;

  void set_deadline(double seconds);
  // Waits for what comes from peers another way, until `done`. Errors and deadline as in receive();
  // what `done` throws is taken for the loss of the first peer.
  void wait(const std::vector<int>& peers, const std::function<bool()>& done);

  // A link of their own for tensors on GPUs, beside this one, which must outlive it and watches
  // over the peers. All ranks call it, naming each other as peers. Error(usage) in a build without
  // CUDA.
  std::shared_ptr<GpuLink> connect_gpus(at::Device device, const std::vector<int>& peers);

  // Takes leave of the others: waits until all that any rank has sent was taken, wanted or not, so
  // that none is missed before that. Messages before it must not be empty. All ranks call it;
  // Error(temporary) otherwise.
  void finish();

 private:
  class Group;
  explicit C10dTransport(std::unique_ptr<Group> group);
  std::unique_ptr<Group> group_;
};

}  // namespace dex
