// Speeds of plain and explored decoding. As llama-bench has it, "pp" reads a prompt up to its first
// token and "tg" generates tokens after a context that was laid down untimed. Loading and
// tokenising are over before.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "decode/methods/method.h"
#include "decode/report.h"
#include "decode/session.h"

namespace dex {

struct BenchPlan {
  std::vector<std::string> methods;  // by name
  // no prompt tokens: no pp; no tokens: no tg
  int prompt_tokens = 512, tokens = 64, context = 0, repeats = 5;
  std::vector<std::vector<Token>> prompts;  // contexts of tg in place of `context` ids made up

  // Error(usage) when it cannot be, or the model has too few positions
  void check(const ModelConfig& model, const Methods& known) const;
};

struct BenchTest {
  std::string method;
  bool is_reference = false, explores = false;  // as its Method says
  std::vector<std::vector<Token>> prompts;      // all of them once a repeat
  int n_prompt = 0, n_gen = 0;                  // one of them is 0
  DecodeTally tally;                            // of all repeats
  std::vector<double> seconds = {};             // by repeat

  std::string name() const;  // pp512, tg64
  double tokens_per_repeat() const;
  double context() const;             // mean tokens before what is timed
  std::vector<double> rates() const;  // tokens per second, by repeat
};

struct BenchResult {
  std::vector<BenchTest> tests;
  // bytes per second, of the same number of threads, best of a pass before every repeat
  double read_peak = 0;
  std::int64_t peak_memory = 0;           // bytes
  std::optional<std::string> difference;  // between the methods' tokens
};

// Runs every test once uncounted, then `repeats` times in turn, so that all of them meet the same
// noise of the machine.
BenchResult run_bench(const Session& session, const Methods& known, const BenchPlan& plan);

// `count` ids below `vocab`, the same ones everywhere.
std::vector<Token> made_up_ids(int count, int vocab);

}  // namespace dex
