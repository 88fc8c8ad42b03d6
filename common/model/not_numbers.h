// Logits that hold NaN: a fault of one text's numbers, after which other texts may go on.
#pragma once
#include <cstdint>

#include "common/base/error.h"

namespace dex {

struct NotNumbers : Error {  // its code is io
  using Error::Error;
};

// Where an answer that holds no numbers (ExitAnswer::numbers) is needed. The position is that of
// the token before the one that would be picked.
inline void require_numbers(bool numbers, int depth, std::int64_t position) {
  if (!numbers)
    throw NotNumbers(
        ExitCode::io,
        fmt::format("the model gives no numbers: the logits at depth {}, position {} hold NaN",
                    depth, position));
}

}  // namespace dex
