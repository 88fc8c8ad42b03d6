// Logits that hold NaN: a fault of one text's numbers, after which other texts may go on.
#pragma once
#include "common/base/error.h"

namespace dex {

struct NotNumbers : Error {  // its code is io
  using Error::Error;
};

}  // namespace dex
