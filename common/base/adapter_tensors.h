// The tensors of an adapter as its files name them: "depth.<d>.up.weight", ...
#pragma once
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dex::adapter_tensor {

inline constexpr const char *kNorm = "norm.weight", *kUp = "up.weight", *kUpBias = "up.bias",
                            *kDown = "down.weight", *kDownBias = "down.bias", *kAlpha = "alpha";

using Shape = std::vector<std::int64_t>;

// Of the adapter of one depth, by name.
inline std::map<std::string, Shape> shapes(std::int64_t hidden, std::int64_t width) {
  return {{kNorm, {hidden}},        {kUp, {width, hidden}}, {kUpBias, {width}},
          {kDown, {hidden, width}}, {kDownBias, {hidden}},  {kAlpha, {}}};
}

inline std::string name_at(int depth, std::string_view name) {
  return fmt::format("depth.{}.{}", depth, name);
}

// Of a name that name_at() gave, or nothing.
inline std::optional<int> depth_of(std::string_view name) {
  constexpr std::string_view kPrefix = "depth.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  int depth = 0;
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, depth);
  const bool whole = error == std::errc() && rest != end && *rest == '.' && depth >= 0;
  return whole ? std::optional(depth) : std::nullopt;
}

}  // namespace dex::adapter_tensor
