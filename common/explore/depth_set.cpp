#include "common/explore/depth_set.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "common/base/error.h"

namespace dex {
namespace {

int parse_depth(std::string_view piece, const std::string& text) {
  int depth = 0;
  const auto [end, error] = std::from_chars(piece.data(), piece.data() + piece.size(), depth);
  require(error == std::errc() && end == piece.data() + piece.size(), ExitCode::usage,
          "depths \"{}\": \"{}\" is not a depth; wanted whole numbers with commas between them, "
          "such as 10,20",
          text, piece);
  return depth;
}

}  // namespace

DepthSet::DepthSet(std::vector<int> inner, int num_layers) : depths_(std::move(inner)) {
  require(num_layers >= 1, ExitCode::usage, "depths of a model with {} layers; wanted at least 1",
          num_layers);
  int before = 0;
  for (int depth : depths_) {
    require(depth > before && depth < num_layers, ExitCode::usage,
            "depth {} after {}; wanted increasing depths in 1..{} (the final depth {} is always "
            "explored)",
            depth, before, num_layers - 1, num_layers);
    before = depth;
  }
  depths_.push_back(num_layers);
}

DepthSet DepthSet::parse(const std::string& text, int num_layers) {
  std::vector<int> inner;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    inner.push_back(parse_depth(std::string_view(text).substr(begin, end - begin), text));
    begin = end + 1;
  }
  if (!inner.empty() && inner.back() == num_layers) inner.pop_back();
  return DepthSet(std::move(inner), num_layers);
}

DepthSet DepthSet::uniform(int num_stages, int num_layers) {
  require(num_stages >= 1 && num_stages <= num_layers, ExitCode::usage,
          "{} depths of a model with {} layers; wanted 1..{}", num_stages, num_layers, num_layers);
  std::vector<int> inner;
  for (std::int64_t k = 1; k < num_stages; ++k) inner.push_back(int(k * num_layers / num_stages));
  return DepthSet(std::move(inner), num_layers);
}

LayerRange DepthSet::layers(int stage) const {
  return {stage == 0 ? 0 : depth(stage - 1), depth(stage)};
}

int DepthSet::ceiling(int depth) const {
  require(depth >= 1 && depth <= num_layers(), ExitCode::bug, "ceiling of depth {}; wanted 1..{}",
          depth, num_layers());
  return *std::lower_bound(depths_.begin(), depths_.end(), depth);
}

// The worst depth of a stage is its first one, so the largest rounding error is one less than the
// largest stage.
int DepthSet::resolution() const {
  int worst = 0;
  for (int stage = 0; stage < num_stages(); ++stage)
    worst = std::max(worst, layers(stage).size() - 1);
  return worst;
}

std::string DepthSet::text() const { return fmt::format("{}", fmt::join(depths_, ",")); }

}  // namespace dex
