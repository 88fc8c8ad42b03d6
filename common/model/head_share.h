// Whole slices of the vocabulary (kernels/topk_tokens.h): the ids that one explorer reads of a head
// that all of them share.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/topk_tokens.h"

namespace dex {

struct HeadShare {
  int first_id = 0, ids = 0;

  // Of explorer `part` of `parts`: as even as slices allow, none where there are too few.
  static HeadShare of(int part, int parts, int vocab) {
    const auto begin = [&](int p) {
      const std::int64_t slices = vocab_slices(vocab);
      return std::min<int>(vocab, int(slices * p / parts) * kVocabSlice);
    };
    return {begin(part), begin(part + 1) - begin(part)};
  }
  static HeadShare whole(int vocab) { return {0, vocab}; }
};

}  // namespace dex
