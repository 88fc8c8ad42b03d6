// What every program's main does around its work.
#pragma once
#include <functional>
#include <limits>

#include "common/base/error.h"

namespace dex {

// Runs `work` and returns what it returns. What it throws becomes one line on stderr, "NAME: error:
// ...", and the exit code that says who can help; a stdout that cannot be written counts as such an
// error.
int run_program(const char* name, const std::function<int()>& work);

// The exception that is being handled, with the exit code that run_program() gives it.
Error current_error();

// A whole number among a program's arguments; Error(usage) names it where it is none or not in
// [least, most].
int number_argument(const char* name, const char* text, int least,
                    int most = std::numeric_limits<int>::max());

}  // namespace dex
