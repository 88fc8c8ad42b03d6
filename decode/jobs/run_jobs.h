// A file of jobs to a file of answers: one answer line for every non-blank job line, in input
// order.
#pragma once
#include <filesystem>

#include "decode/methods/method.h"
#include "decode/session.h"

namespace dex {

struct RunJobsOptions {
  std::filesystem::path input, output;
  bool verify = false;
  Limits limits;  // max_tokens where a job names none
  bool parse_special = false;
};

// Prints the counts, and one JSON line on stdout. Answers hold only functions of the job; times and
// round statistics go to <output>.stats.jsonl. Both files appear whole. Returns 0, or 3 when lines
// were bad. A difference that --verify finds is an Error(bug), and nothing is written.
int run_jobs(const Session& session, const Method& method, const RunJobsOptions& options);

}  // namespace dex
