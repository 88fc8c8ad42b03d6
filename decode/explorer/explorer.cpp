#include "decode/explorer/explorer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/model/prefill.h"

namespace dex {

Explorer::Explorer(const ModelInfo& model, const ExplorePlan& plan, int stage, StageEngine& engine,
                   RowLink& link, AnswerBoard& board, const Clock& clock)
    : model_(model),
      plan_(plan),
      stage_(stage),
      engine_(engine),
      link_(link),
      board_(board),
      clock_(clock),
      exits_(exit_proposer(plan.policy)) {}

void Explorer::lead(EventQueue& events, const OnToken& on_token, const OnFinish& on_finish) {
  events_ = &events;
  on_token_ = on_token;
  on_finish_ = on_finish;
  run();
}

void Explorer::run() {
  while (next_text()) {
    const Event text = std::move(waiting_.front());
    waiting_.pop_front();
    decode(text);
  }
}

bool Explorer::next_text() {
  while (waiting_.empty() && !stopping_) act_on(exchange({}, /*wait=*/true).front().events);
  return !waiting_.empty();
}

void Explorer::act_on(const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (event.kind == Event::Kind::submit) waiting_.push_back(event);
    if (event.kind == Event::Kind::stop) stopping_ = true;
    if (event.kind != Event::Kind::cancel) continue;
    cancelled_ = cancelled_ || event.sequence == running_;
    std::erase_if(waiting_, [&](const Event& text) { return text.sequence == event.sequence; });
  }
}

void Explorer::decode(const Event& request) {
  const std::span<const Token> prompt = request.prompt;
  TextRun text(model_, prompt, request.limits, on_token_, clock_);
  if (!text.ended()) {
    running_ = request.sequence;
    cancelled_ = false;
    const int context_size = int(prompt.size()) - 1, num_stages = plan_.depths.num_stages();
    engine_.begin(context_size + text.room() + plan_.policy.max_nodes(num_stages), request.limits);
    auto context = prefill(prompt.first(context_size));
    wait_for_all();
    text.prefilled();
    Lattice lattice(num_stages, std::move(context), request.prompt, context_size + text.room() - 1,
                    rows_, request.sequence);
    if (plan_.drafts) drafts_ = plan_.drafts();
    while (round(lattice, text)) {
    }
    running_ = -1;
  }
  if (on_finish_) on_finish_(request.sequence, text.finish());
}

std::vector<std::int32_t> Explorer::prefill(std::span<const Token> tokens) {
  auto context = rows_.take(tokens.size());
  each_prefill_chunk(context, [&](const RowLayout& layout, int begin, int count) {
    at::Tensor x = first() ? engine_.embed(tokens.subspan(begin, count)) : link_.receive();
    engine_.forward(x, layout);
    if (last()) return;
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    link_.send(x, all);
  });
  return context;
}

bool Explorer::round(Lattice& lattice, TextRun& text) {
  const std::vector<int> nodes(lattice.wave(stage_).begin(), lattice.wave(stage_).end());
  text.begin_round(lattice.wave(0).size());
  at::Tensor rows = rows_in(lattice);
  expand(lattice, rows);
  while (const auto committed = text.ended() ? std::nullopt : lattice.commit())
    text.emit(*committed);
  if (!text.ended() && cancelled_) text.cancel();
  if (text.ended()) return false;
  inject(lattice);
  rows_out(lattice, nodes, rows);
  return true;
}

at::Tensor Explorer::rows_in(const Lattice& lattice) {
  // In the first rounds no row has come this far, and none is sent.
  if (!first() && lattice.round() == 1) return at::empty({0, model_.config.hidden_size});
  if (!first()) return link_.receive();
  std::vector<Token> tokens;
  for (int id : lattice.wave(0)) tokens.push_back(lattice.node(id).token);
  return engine_.embed(tokens);
}

void Explorer::expand(Lattice& lattice, at::Tensor& rows) {
  engine_.forward(rows, lattice.layout(stage_));
  auto posts = plan_.shared_head
                   ? read_shared_head(lattice, rows)
                   : exchange({.answers = engine_.read(rows, question(lattice, stage_))},
                              /*wait=*/false);
  for (int stage = 0; stage < lattice.num_stages(); ++stage)
    lattice.record(stage, std::move(posts[stage].answers));
  act_on(posts.front().events);
}

ExitQuestion Explorer::question(const Lattice& lattice, int stage) const {
  ExitQuestion question;
  for (const int id : lattice.wave(stage)) question.positions.push_back(lattice.node(id).position);
  // Of the final exit only the reference is wanted: nobody proposes behind it.
  if (stage + 1 == lattice.num_stages()) return question;
  question.width = plan_.policy.answer_width(lattice.num_stages());
  question.asked = lattice.asked(stage);
  return question;
}

// Every explorer reads its share of the head for the rows of all exits; what all of them found
// gives every exit's answers.
std::vector<Post> Explorer::read_shared_head(const Lattice& lattice, const at::Tensor& rows) {
  const int exits = lattice.num_stages();
  std::vector<ExitQuestion> questions;
  for (int stage = 0; stage < exits; ++stage) questions.push_back(question(lattice, stage));
  const at::Tensor of_all = board_.gather(engine_.exit_rows(rows, /*bare=*/false));
  const HeadShare mine = HeadShare::of(stage_, exits, model_.vocab);
  auto posts = exchange({.slices = engine_.look(of_all, questions, mine)}, /*wait=*/false);
  for (const Post& post : posts)
    require(int(post.slices.size()) == exits, ExitCode::bug,
            "an explorer read the head for {} exits, wanted {}", post.slices.size(), exits);
  for (int stage = 0; stage < exits; ++stage) {
    std::vector<RowSlices> parts;
    for (Post& post : posts) parts.push_back(std::move(post.slices[stage]));
    posts[stage].answers = engine_.answers(parts, questions[stage]);
  }
  return posts;
}

void Explorer::inject(Lattice& lattice) {
  std::vector<Proposal> proposals;
  exits_->propose(lattice, proposals);
  if (drafts_) drafts_->propose(lattice, proposals);
  lattice.inject(choose(std::move(proposals), plan_.policy, lattice));
}

void Explorer::rows_out(const Lattice& lattice, std::span<const int> nodes,
                        const at::Tensor& rows) {
  if (last()) return;
  std::vector<int> survivors;
  for (int id : lattice.wave(stage_ + 1))
    survivors.push_back(std::find(nodes.begin(), nodes.end(), id) - nodes.begin());
  link_.send(rows, survivors);
}

// Nobody's first round can end before everyone's prefill has.
void Explorer::wait_for_all() { act_on(exchange({}, /*wait=*/false).front().events); }

std::vector<Post> Explorer::exchange(Post mine, bool wait) {
  if (events_) mine.events = wait ? events_->wait() : events_->take();
  return board_.exchange(mine);
}

}  // namespace dex
