// What explorers tell everyone: after each round all post, and all read all posts.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/explore/event_queue.h"
#include "common/explore/exit_answer.h"
#include "common/model/sampler.h"

namespace dex {

struct Post {
  std::vector<ExitAnswer> answers;  // of this explorer's exit, row by row; or
  std::vector<RowSlices> slices;    // what its share of the head found, exit by exit
  std::vector<Event> events;        // explorer 0's; others have none
};

class AnswerBoard {
 public:
  virtual ~AnswerBoard() = default;
  // Both wait for all explorers, and all call them in the same order.
  virtual std::vector<Post> exchange(const Post& mine) = 0;  // by explorer
  // Where they share the head: what every exit hands to it, (rows, hidden) f32, exit after exit.
  virtual at::Tensor gather(const at::Tensor& exit_rows_RD) = 0;
};

}  // namespace dex
