// What an exit is asked about rows that its stage has just advanced.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/token.h"

namespace dex {

struct ExitQuestion {
  int width = 1;                          // best tokens wanted of each row
  std::vector<std::vector<Token>> asked;  // (rows): ids whose probability is wanted; or empty
  std::vector<std::int32_t> positions;    // (rows): of the token before the one that is picked
  bool bare = false;                      // read the hidden state without the exit's adapter

  int rows() const { return int(positions.size()); }
};

inline int rows_of(std::span<const ExitQuestion> questions) {  // in all
  int rows = 0;
  for (const ExitQuestion& question : questions) rows += question.rows();
  return rows;
}

}  // namespace dex
