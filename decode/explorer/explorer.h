// E_k: one stage and its exit on one device (paper, Algorithm 1). Every explorer replays the same
// lattice from the same posts; there is no coordinator. Explorer 0 passes on what is asked of them.
#pragma once
#include <deque>
#include <functional>
#include <memory>

#include "common/explore/event_queue.h"
#include "common/explore/lattice.h"
#include "common/model/stage_engine.h"
#include "decode/explorer/answer_board.h"
#include "decode/explorer/row_link.h"
#include "decode/text_run.h"

namespace dex {

// What all explorers of a decoder agree on.
struct ExplorePlan {
  DepthSet depths;
  LatticePolicy policy;
  std::function<std::unique_ptr<Proposer>()> drafts;  // beside the exits, made for a text; or none
  bool shared_head = false;                           // head_use.h
};

class Explorer {
 public:
  // Of the stage `stage`. What is passed by reference must outlive it.
  Explorer(const ModelInfo& model, const ExplorePlan& plan, int stage, StageEngine& engine,
           RowLink& link, AnswerBoard& board, const Clock& clock);

  // Explorer 0: decodes the texts that `events` submit, one after the other, until it is told to
  // stop.
  using OnFinish = std::function<void(int sequence, DecodeResult result)>;
  void lead(EventQueue& events, const OnToken& on_token, const OnFinish& on_finish);
  // The others, in step with it.
  void run();

 private:
  bool next_text();  // false when there is none and none will come
  void act_on(const std::vector<Event>& events);
  void decode(const Event& text);
  std::vector<std::int32_t> prefill(std::span<const Token> context);
  bool round(Lattice& lattice, TextRun& text);  // false when it was the last one
  at::Tensor rows_in(const Lattice& lattice);
  void expand(Lattice& lattice, at::Tensor& rows);
  ExitQuestion question(const Lattice& lattice, int stage) const;
  std::vector<Post> read_shared_head(const Lattice& lattice, const at::Tensor& rows);
  void inject(Lattice& lattice);
  void rows_out(const Lattice& lattice, std::span<const int> nodes, const at::Tensor& rows);
  void wait_for_all();
  std::vector<Post> exchange(Post mine, bool wait);

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == plan_.depths.num_stages(); }

  const ModelInfo& model_;
  const ExplorePlan& plan_;
  int stage_;
  StageEngine& engine_;
  RowLink& link_;
  AnswerBoard& board_;
  const Clock& clock_;
  std::unique_ptr<Proposer> exits_, drafts_;  // drafts_: of the text that is decoded, or null

  EventQueue* events_ = nullptr;  // explorer 0's
  OnToken on_token_;
  OnFinish on_finish_;
  std::deque<Event> waiting_;  // texts, in the order they came
  RowPool rows_;
  int running_ = -1;  // sequence
  bool cancelled_ = false, stopping_ = false;
};

}  // namespace dex
