// How ranks exchange messages: one object per rank, explorers and trainers alike. Calls block; they
// throw Error(temporary) when a peer is lost, or with the code of a peer that has aborted.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace dex {

using Bytes = std::vector<std::byte>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void send(Bytes message, int to) = 0;  // does not wait for the receiver
  virtual Bytes receive(int from) = 0;           // in the order sent
  // wakes every waiting peer
  virtual void abort(const std::string& reason, ExitCode code = ExitCode::temporary) noexcept = 0;
  // for messages of errors: "step 3, hidden rows"
  virtual void doing(const std::string& /*what*/) {}
};

// Ranks as threads of one process.
std::vector<std::unique_ptr<Transport>> local_transports(int size);

}  // namespace dex
