// What explorers tell everyone: after each round all post, and all read all posts.
#pragma once
#include <vector>

#include "common/explore/event_queue.h"
#include "common/explore/exit_answer.h"

namespace dex {

struct Post {
  std::vector<ExitAnswer> answers;  // of this explorer's exit, row by row
  std::vector<Event> events;        // explorer 0's; others have none
};

class AnswerBoard {
 public:
  virtual ~AnswerBoard() = default;
  virtual std::vector<Post> exchange(const Post& mine) = 0;  // by explorer; waits for all
};

}  // namespace dex
