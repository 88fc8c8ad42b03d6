// Tagged messages over a transport: all that ranks and explorers say to each other. Messages of one
// tag between two of them arrive in the order sent. Tags do not wait for each other: what comes
// before it is asked for is kept.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/transport.h"

namespace dex {

enum class Tag : std::uint8_t {
  rows,        // hidden states at the end of a stage, to the next one
  final_rows,  // hidden states after the last layer, back to the stages before
  gradients,   // parts of their sum over replicas
  equations,   // of the closed-form start
  report,      // what a rank saw of a step
  decision,    // what the step came to
  answers,     // of exits
  exit_rows,   // what exits hand to a head that all explorers share
  post,        // of an explorer, after a round: its exit's answers and what is asked of all
  counts,      // of an evaluation
  state,       // weights and moments
  agreement,   // on what the ranks do together
  times,       // of decoding rounds
  alive        // the sender is at work and will go on
};

const char* name_of(Tag tag);  // for messages of errors: "hidden rows"

class Messages {
 public:
  explicit Messages(Transport& transport) : transport_(transport) {}
  Messages(Messages&&) = default;
  Messages(const Messages&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }

  // From now on messages of errors say where they happened, such as "step 3".
  void during(std::string what) { during_ = std::move(what); }

  // Tells the transport that what follows is about this tag; the calls below do so themselves.
  void doing(Tag tag);

  // The message grows by a byte: one with room for it is not copied. Does not wait for the
  // receiver.
  void send(Tag tag, Bytes message, int to);
  Bytes receive(Tag tag, int from);

  // The messages of all, by rank. All call it.
  std::vector<Bytes> all_gather(Tag tag, Bytes mine);

 private:
  Transport& transport_;
  std::string during_;
  std::map<std::pair<int, Tag>, std::deque<Bytes>> waiting_;  // came before they were asked for
};

}  // namespace dex
