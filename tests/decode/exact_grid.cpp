// The long proof of losslessness on a real model: every combination asked for is decoded and
// compared with plain decoding in ids and in the bits of every committed token's final logits.
// Prints a line per combination; exit code 1 on any difference. Run by launch/test --long; see
// README.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "checkpoints/adapter_file.h"
#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/stopwatch.h"
#include "common/text/chat_template.h"
#include "decode/jobs/job.h"
#include "decode/jobs/job_prompt.h"
#include "decode/session.h"
#include "decode/verify.h"

namespace dex {
namespace {

struct Grid {
  std::filesystem::path model, prompts;
  std::vector<int> stages{3}, rows{16};
  std::vector<std::string> adapters{"none"}, dtypes{"f32"}, modes{"full", "budget"};
  int limit = 4, max_tokens = 32, threads = 2;
};

// "none", "zero", "random", or a name for an adapter directory: NAME=DIR.
Adapters make_adapters(const std::string& kind, const Model& model) {
  Adapters adapters;
  if (kind == "none") return adapters;
  const auto generator = at::detail::createCPUGenerator(7);
  const std::int64_t h = model.config.hidden_size;
  const auto file =
      kind.find('=') == std::string::npos
          ? std::nullopt
          : std::optional(read_adapter_file(kind.substr(kind.find('=') + 1), model.fingerprint,
                                            model.known_digests()));
  for (int k = 0; k + 1 < model.depths.num_stages(); ++k) {
    AdapterWeights w;
    if (file) {
      w = AdapterWeights::read(file->weights, model.config, model.depths.depth(k));
    } else {
      const double scale = kind == "zero" ? 0.0 : 0.05;
      const auto draw = [&](std::vector<std::int64_t> shape) {
        return at::randn(shape, generator) * scale;
      };
      w = {at::ones({h}),    draw({2 * h, h}), draw({2 * h}),
           draw({h, 2 * h}), draw({h}),        at::ones({})};
    }
    adapters.push_back(std::make_unique<Adapter>(w, model.config.rms_norm_eps, model.dtype));
  }
  adapters.push_back(nullptr);
  return adapters;
}

bool covers(const std::string& kind, const Model& model) {
  if (kind.find('=') == std::string::npos) return true;
  const auto depths = read_adapter_file(kind.substr(kind.find('=') + 1)).config.depths;
  for (int k = 0; k + 1 < model.depths.num_stages(); ++k)
    if (std::find(depths.begin(), depths.end(), model.depths.depth(k)) == depths.end())
      return false;
  return true;
}

std::vector<std::vector<Token>> prompts_of(const Grid& grid) {
  const Session session({.model = grid.model});
  std::vector<std::vector<Token>> prompts;
  for (const JobLine& line : parse_jobs(read_file(grid.prompts))) {
    if (int(prompts.size()) == grid.limit) break;
    const Job& job = std::get<Job>(line.content);
    prompts.push_back(prompt_of(job, session, false));
  }
  return prompts;
}

int run(const Grid& grid) {
  const auto prompts = prompts_of(grid);
  const int num_layers = read_model_config(grid.model).num_layers;
  std::int64_t compared = 0, differences = 0;
  std::printf("%-5s %2s %-7s %4s %-9s %8s %8s %10s %11s %8s\n", "dtype", "K", "expand", "rows",
              "adapters", "tokens", "rounds", "per token", "differences", "seconds");
  for (const auto& dtype : grid.dtypes) {
    std::vector<DecodeResult> plain;
    {
      const Model model = Model::load(grid.model, DepthSet({}, num_layers), parse_dtype(dtype));
      const auto decoder = plain_decoder(model, grid.threads);
      const Stopwatch watch;
      std::int64_t tokens = 0, near_ties = 0;
      for (const auto& prompt : prompts) {
        plain.push_back(decoder->generate(prompt, {.max_tokens = grid.max_tokens}, {}));
        for (const auto& t : plain.back().tokens) ++tokens, near_ties += t.gap < 1e-3f;
      }
      std::printf(
          "%-5s  plain decoding: %lld tokens of %zu prompts, %lld with a top-2 gap under 1e-3, "
          "%.1f s\n",
          dtype.c_str(), static_cast<long long>(tokens), prompts.size(),
          static_cast<long long>(near_ties), watch.seconds());
    }
    for (int K : grid.stages) {
      const Model model =
          Model::load(grid.model, DepthSet::uniform(K, num_layers), parse_dtype(dtype),
                      WeightLayout::panels, DigestsOf::what_is_read);
      for (const auto& kind : grid.adapters) {
        if (!covers(kind, model)) continue;
        const Adapters adapters = make_adapters(kind, model);
        std::vector<LatticePolicy> policies;
        for (const auto& mode : grid.modes) {
          if (mode == "full")
            policies.push_back({.expand = Expand::full});
          else
            for (int rows : grid.rows) policies.push_back({.rows = rows});
        }
        for (const auto& policy : policies) {
          const auto decoder =
              dex_decoder(model, adapters, policy, std::max(1, grid.threads / K), {});
          const Stopwatch watch;
          std::int64_t tokens = 0, rounds = 0, wrong = 0;
          for (std::size_t i = 0; i < prompts.size(); ++i) {
            const auto got = decoder->generate(prompts[i], {.max_tokens = grid.max_tokens}, {});
            tokens += std::int64_t(got.tokens.size());
            rounds += got.rounds;
            if (const auto difference = first_difference(plain[i], got)) {
              ++wrong;
              std::printf("  prompt %zu: %s\n", i, difference->c_str());
            }
          }
          compared += tokens;
          differences += wrong;
          const bool full = policy.expand == Expand::full;
          std::printf("%-5s %2d %-7s %4s %-9s %8lld %8lld %10.3f %11lld %8.1f\n", dtype.c_str(), K,
                      full ? "full" : "budget", full ? "-" : std::to_string(policy.rows).c_str(),
                      kind.substr(0, kind.find('=')).c_str(), static_cast<long long>(tokens),
                      static_cast<long long>(rounds), double(rounds) / tokens,
                      static_cast<long long>(wrong), watch.seconds());
          std::fflush(stdout);
        }
      }
    }
  }
  std::printf("%lld tokens compared in ids and bits of the final logits: %lld differences\n",
              static_cast<long long>(compared), static_cast<long long>(differences));
  return differences == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dex

int main(int argc, char** argv) {
  dex::Grid grid;
  CLI::App app("Compare exploration with plain decoding over a grid of settings", "exact_grid");
  app.add_option("--model", grid.model)->required();
  app.add_option("--prompts", grid.prompts, "Job lines")->required();
  app.add_option("--stages", grid.stages, "Numbers of explorers K, depths evenly spaced")
      ->delimiter(',');
  app.add_option("--rows", grid.rows, "Budgets R")->delimiter(',');
  app.add_option("--modes", grid.modes, "full, budget")->delimiter(',');
  app.add_option("--adapters", grid.adapters, "none, zero, random, NAME=DIR")->delimiter(',');
  app.add_option("--dtypes", grid.dtypes, "f32, bf16")->delimiter(',');
  app.add_option("--limit", grid.limit, "Prompts");
  app.add_option("--max-tokens", grid.max_tokens, "Tokens per prompt");
  app.add_option("--threads", grid.threads, "Threads in all");
  CLI11_PARSE(app, argc, argv);
  dex::start_log(true);
  try {
    return dex::run(grid);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exact_grid: error: %s\n", error.what());
    return 1;
  }
}
