#include "decode/bench/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "common/base/spread.h"

namespace dex {
namespace {

using Json = nlohmann::json;

bool streams_once_a_token(const BenchTest& test) { return test.is_reference && test.n_gen > 0; }

// The best speed that weights were read at: a decoder may beat the plain reader on a machine that
// others use, too.
double peak_of(const BenchResult& result, const BenchSetting& setting) {
  double peak = result.read_peak;
  for (const BenchTest& test : result.tests)
    if (streams_once_a_token(test))
      peak = std::max(peak, spread_of(test.rates()).most * double(setting.weight_bytes));
  return peak;
}

const BenchTest* same_test_plainly(const BenchTest& test, const BenchResult& result) {
  for (const BenchTest& other : result.tests)
    if (other.is_reference && other.name() == test.name()) return &other;
  return nullptr;
}

// The median of the ratios of runs that followed each other.
std::optional<double> relative_to_plain(const BenchTest& test, const BenchResult& result) {
  const BenchTest* plain = same_test_plainly(test, result);
  if (!plain || plain == &test) return std::nullopt;
  std::vector<double> ratios = test.rates();
  const std::vector<double> rates = plain->rates();
  for (std::size_t i = 0; i < ratios.size(); ++i)
    ratios[i] = rates[i] > 0 ? ratios[i] / rates[i] : 0;
  return spread_of(ratios).median;
}

double rounds_per_token(const BenchTest& test) {
  const Json counts = test.tally.json();
  return counts.at("rounds").get<double>() / counts.at("tokens").get<double>();
}

std::string row(const BenchTest& test, const BenchResult& result, const BenchSetting& setting) {
  const Spread rate = spread_of(test.rates()), seconds = spread_of(test.seconds);
  const auto bandwidth = bandwidth_of(test, result, setting);
  const auto relative = relative_to_plain(test, result);
  return fmt::format("{:<8} {:<8} {:>10.2f} {:>20} {:>11.1f} {:>8} {:>9} {:>9} {:>13}\n",
                     test.name(), test.method, rate.median,
                     fmt::format("{:.2f} .. {:.2f}", rate.least, rate.most), 1000 * seconds.median,
                     bandwidth ? fmt::format("{:.1f}", bandwidth->bytes_per_second * 1e-9) : "",
                     bandwidth ? fmt::format("{:.0f} %", 100 * bandwidth->share) : "",
                     relative ? fmt::format("{:.2f}x", *relative) : "",
                     test.n_gen > 0 ? fmt::format("{:.3f}", rounds_per_token(test)) : "");
}

Json line_of(const BenchTest& test, const BenchResult& result, const BenchSetting& setting,
             const std::string& time) {
  const Spread rate = spread_of(test.rates()), seconds = spread_of(test.seconds);
  std::vector<std::int64_t> samples_ns;
  for (const double s : test.seconds) samples_ns.push_back(std::int64_t(s * 1e9));
  Json line = {{"cpu_info", setting.cpu},
               {"model_filename", setting.model},
               {"n_threads", setting.threads},
               {"n_prompt", test.n_prompt},
               {"n_gen", test.n_gen},
               {"n_depth", test.context()},
               {"test_time", time},
               {"avg_ns", std::int64_t(seconds.mean * 1e9)},
               {"stddev_ns", std::int64_t(seconds.deviation * 1e9)},
               {"avg_ts", rate.mean},
               {"stddev_ts", rate.deviation},
               {"samples_ns", samples_ns},
               {"samples_ts", test.rates()},
               // llama-bench has none of the following.
               {"test", test.name()},
               {"method", test.method},
               {"dtype", setting.dtype},
               {"texts", test.prompts.size()},
               {"median_ts", rate.median},
               {"min_ts", rate.least},
               {"max_ts", rate.most},
               {"weight_bytes_per_token", setting.weight_bytes},
               {"peak_bytes_per_second", peak_of(result, setting)},
               {"peak_memory_bytes", result.peak_memory}};
  if (test.n_prompt > 0) line["first_token_seconds"] = seconds.median;
  if (const auto b = bandwidth_of(test, result, setting)) {
    line["bytes_per_second"] = b->bytes_per_second;
    line["share_of_peak"] = b->share;
  }
  if (const auto relative = relative_to_plain(test, result)) line["relative_to_ar"] = *relative;
  if (test.n_gen > 0) {
    const Json counts = test.tally.json();
    for (const char* name : {"depths", "hits_per_exit", "mean_hop", "peak_rows"})
      line[name] = counts.at(name);
    line["rounds_per_token"] = rounds_per_token(test);
  }
  return line;
}

}  // namespace

std::optional<Bandwidth> bandwidth_of(const BenchTest& test, const BenchResult& result,
                                      const BenchSetting& setting) {
  if (!streams_once_a_token(test)) return std::nullopt;
  const double rate = spread_of(test.rates()).median * double(setting.weight_bytes);
  return Bandwidth{rate, rate / peak_of(result, setting)};
}

std::string bench_table(const BenchResult& result, const BenchSetting& setting) {
  std::string text = fmt::format(
      "model    {}, {}, explored depths {}; {:.1f} MB of weights per pass\n", setting.model,
      setting.dtype, setting.depths.text(), double(setting.weight_bytes) * 1e-6);
  text += fmt::format(
      "machine  {}, {} thread(s); plain reading {:.1f} GB/s, peak of this run {:.1f} GB/s\n",
      setting.cpu, setting.threads, result.read_peak * 1e-9, peak_of(result, setting) * 1e-9);
  text += fmt::format("memory   {:.0f} MB at most\n\n", double(result.peak_memory) * 1e-6);
  text +=
      fmt::format("{:<8} {:<8} {:>10} {:>20} {:>11} {:>8} {:>9} {:>9} {:>13}\n", "test", "method",
                  "tokens/s", "least .. most", "ms", "GB/s", "of peak", "to ar", "rounds/token");
  for (const BenchTest& test : result.tests) text += row(test, result, setting);
  for (const BenchTest& test : result.tests)
    if (test.explores && test.n_gen > 0)
      text += "\n" + test.name() + " by " + test.method + ", all repeats: " + test.tally.table();
  return text;
}

std::string bench_lines(const BenchResult& result, const BenchSetting& setting) {
  const std::string time =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
  std::string lines;
  for (const BenchTest& test : result.tests)
    lines +=
        line_of(test, result, setting, time).dump(-1, ' ', false, Json::error_handler_t::replace) +
        "\n";
  return lines;
}

Json bench_summary(const BenchResult& result, const BenchSetting& setting) {
  Json methods;
  for (const BenchTest& test : result.tests) {
    Json& method = methods[test.method];
    if (test.n_gen > 0) {
      method["tokens_per_second"] = spread_of(test.rates()).median;
      method["rounds_per_token"] = rounds_per_token(test);
      if (const auto relative = relative_to_plain(test, result))
        method["relative_to_ar"] = *relative;
      if (const auto b = bandwidth_of(test, result, setting)) method["share_of_peak"] = b->share;
    } else {
      method["prompt_tokens_per_second"] = spread_of(test.rates()).median;
      method["first_token_seconds"] = spread_of(test.seconds).median;
    }
  }
  return {{"command", "bench"},
          {"model", setting.model},
          {"dtype", setting.dtype},
          {"threads", setting.threads},
          {"cpu_info", setting.cpu},
          {"peak_bytes_per_second", peak_of(result, setting)},
          {"peak_memory_bytes", result.peak_memory},
          {"methods", methods},
          {"verified", !result.difference}};
}

}  // namespace dex
