// How a bench says what it measured.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "decode/bench/bench.h"

namespace dex {

struct BenchSetting {  // what the numbers belong to
  std::string model, dtype, cpu;
  int threads = 0;
  std::int64_t weight_bytes = 0;  // of a pass
  DepthSet depths;
};

// What plain decoding streams of weights, of the largest rate that any reader or decoder reached in
// the run. Exploring reads the weights of the stages that have rows, and those come and go: nothing
// is claimed about it.
struct Bandwidth {
  double bytes_per_second = 0, share = 0;
};
std::optional<Bandwidth> bandwidth_of(const BenchTest& test, const BenchResult& result,
                                      const BenchSetting& setting);

// aligned, a line per test
std::string bench_table(const BenchResult& result, const BenchSetting& setting);

// One line per test, fields named as llama-bench's --output jsonl names them where it has them.
std::string bench_lines(const BenchResult& result, const BenchSetting& setting);

// The closing line: methods.<name>.tokens_per_second and the like.
nlohmann::json bench_summary(const BenchResult& result, const BenchSetting& setting);

}  // namespace dex
