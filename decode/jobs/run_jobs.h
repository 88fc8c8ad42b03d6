// A file of jobs to a file of answers: one answer line for every non-blank job line, in input
// order.
#pragma once
#include <filesystem>

#include "decode/methods/method.h"
#include "decode/session.h"

namespace dex {

struct RunJobsOptions {
  std::filesystem::path input, output;
  bool overwrite = false;  // an output that is there
  bool verify = false;
  Limits limits;  // max_tokens where a job names none
  bool parse_special = false;
};

// Whether answers can be written, as far as can be told before a model is loaded: Error(usage) or
// Error(io).
void check_output(const RunJobsOptions& options);

// Prints the counts, and one JSON line on stdout. Answers hold only functions of the job and of the
// model's name; times and round statistics go to <output>.stats.jsonl. Both files appear whole.
// Returns 0, or 3 when lines were bad. A difference that --verify finds is an Error(bug), and
// nothing is written.
int run_jobs(const Session& session, const Method& method, const RunJobsOptions& options);

}  // namespace dex
