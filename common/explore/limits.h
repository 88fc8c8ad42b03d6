// What is asked of a text beside its prompt. It goes with the text to every explorer.
#pragma once

namespace dex {

struct Limits {
  int max_tokens = 128;      // 0 gives an empty result
  bool ignore_stop = false;  // measurements: go on past the model's end tokens
};

}  // namespace dex
