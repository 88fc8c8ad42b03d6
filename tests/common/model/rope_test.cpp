#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "common/model/config.h"

using dex::ModelConfig;

namespace {

ModelConfig model(int head_dim, const dex::RopeConfig& rope) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope = rope;
  return config;
}

// Bits of what transformers 5.24 with torch 2.11 computes on a CPU.
const std::vector<std::uint32_t> kLlama31 = {
    0x3f800000, 0x3f508ac1, 0x3f29e1c6, 0x3f0a6384, 0x3ee177bc, 0x3eb7ab7d, 0x3e959ee3, 0x3e73c461,
    0x3e4693b0, 0x3e21c3a0, 0x3e03c6a0, 0x3dd6b19c, 0x3daee4ad, 0x3d8e7898, 0x3d681e67, 0x3d3d1684,
    0x3d1a08c8, 0x3cfaf53f, 0x3ccc6f49, 0x3ca68939, 0x3c87a9c3, 0x3c5d06ec, 0x3c340d6d, 0x3c12ac7f,
    0x3beef74f, 0x3bc2aa76, 0x3b9e9402, 0x3b812e35, 0x3b527720, 0x3b0dfd06, 0x3ab3d11d, 0x3a60979e,
    0x3a0995d2, 0x39a3f108, 0x393b2dd2, 0x38c86886, 0x38a3418d, 0x3884fdbf, 0x3858ac81, 0x38308199,
    0x380fc8f8, 0x37ea426f, 0x37bed4f4, 0x379b7475, 0x377d45c3, 0x374e51f5, 0x3728126b, 0x3708ea0f,
    0x36df10c4, 0x36b5b687, 0x369406cb, 0x36712b80, 0x36447610, 0x36200a69, 0x36025f34, 0x35d46808,
    0x35ad07a7, 0x358cf400, 0x3565a54d, 0x353b12c7, 0x351864a7, 0x34f848c2, 0x34ca41b0, 0x34a4c2ff};
const std::vector<std::uint32_t> kLlama32 = {
    0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad, 0x3d681e67,
    0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402, 0x3b527720, 0x3aa9279b,
    0x39e13620, 0x38cb98f7, 0x37a3418d, 0x3758ac81, 0x370fc8f8, 0x36bed4f4, 0x367d45c3, 0x3628126b,
    0x35df10c4, 0x359406cb, 0x35447610, 0x35025f34, 0x34ad07a7, 0x3465a54d, 0x341864a7, 0x33ca41b0};
const std::vector<std::uint32_t> kLinear = {
    0x3eaaaaab, 0x3e7ff6c1, 0x3e3ff223, 0x3e0ff067, 0x3dd7e0cf, 0x3da1e2c2, 0x3d72cb5f, 0x3d3611f4,
    0x3d088889, 0x3cccc567, 0x3c998e81, 0x3c664d71, 0x3c2cb3d9, 0x3c018235, 0x3bc23c4c, 0x3b91a7f7,
    0x3b5a740d, 0x3b23d120, 0x3af5b0d0, 0x3ab83df4, 0x3a8a297b, 0x3a4f36bc, 0x3a1b6370, 0x39e90cbd,
    0x39aec33f, 0x39830db3, 0x39448d73, 0x391364c3, 0x38dd0f2b, 0x38a5c563, 0x38789f19, 0x383a7098};

// The same table in float64, from the description of Llama 3.1: wavelengths over original / low are
// slowed down by factor, those under original / high are kept, and those between are blended by
// their place.
double exact(const ModelConfig& config, int i) {
  const dex::RopeConfig& rope = config.rope;
  const double frequency = std::pow(rope.theta, -2.0 * i / config.head_dim);
  if (rope.type == "default") return frequency;
  if (rope.type == "linear") return frequency / rope.factor;
  const double turns = double(rope.original_max_positions) * frequency / (2 * std::numbers::pi);
  if (turns > rope.high_freq_factor) return frequency;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  const double keep =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return frequency * (keep + (1 - keep) / rope.factor);
}

}  // namespace

TEST_CASE(
    "inverse frequencies have the reference library's bits, up to one unit in the last place") {
  const auto check = [](const ModelConfig& config, const std::vector<std::uint32_t>& bits) {
    const std::vector<float> frequencies = dex::inverse_frequencies(config);
    REQUIRE(frequencies.size() == bits.size());
    int equal = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      CAPTURE(i, frequencies[i], std::bit_cast<float>(bits[i]));
      const auto distance =
          std::abs(std::int64_t(std::bit_cast<std::uint32_t>(frequencies[i])) - bits[i]);
      CHECK(distance <= 1);
      equal += distance == 0;
    }
    CHECK(equal >= int(bits.size()) - 2);
  };
  check(model(128, {500000.0, "llama3", 8.0, 1.0, 4.0, 8192}), kLlama31);
  check(model(64, {500000.0, "llama3", 32.0, 1.0, 4.0, 8192}), kLlama32);
  check(model(64, {10000.0, "linear", 3.0}), kLinear);
}

TEST_CASE("inverse frequencies agree with their formula in float64") {
  const double theta = GENERATE(10000.0, 100000.0, 500000.0, 5000000.0);
  const int head_dim = GENERATE(2, 16, 64, 80, 128);
  for (const dex::RopeConfig& rope :
       {dex::RopeConfig{theta, "default"}, dex::RopeConfig{theta, "linear", 4.0},
        dex::RopeConfig{theta, "llama3", 8.0, 1.0, 4.0, 8192},
        dex::RopeConfig{theta, "llama3", 32.0, 2.0, 8.0, 4096}}) {
    const ModelConfig config = model(head_dim, rope);
    const std::vector<float> frequencies = dex::inverse_frequencies(config);
    REQUIRE(frequencies.size() == std::size_t(head_dim / 2));
    for (int i = 0; i < head_dim / 2; ++i)
      REQUIRE(double(frequencies[i]) == Approx(exact(config, i)).epsilon(3e-6));
  }
}
