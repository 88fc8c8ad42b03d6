// How explorers exchange rows and answers: one object per rank. Calls block; they throw Error(temporary) when a peer
// has aborted.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace dex {

using Bytes = std::vector<std::byte>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void send(Bytes message, int to) = 0;  // does not wait for the receiver
  virtual Bytes receive(int from) = 0;           // in the order sent
  virtual std::vector<Bytes> all_gather(Bytes mine) = 0;  // by rank
  virtual void abort(const std::string& reason) noexcept = 0;  // wakes every waiting peer
};

// Ranks as threads of one process.
std::vector<std::unique_ptr<Transport>> local_transports(int size);

}  // namespace dex
