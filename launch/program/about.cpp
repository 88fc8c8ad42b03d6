#include "launch/program/about.h"

#include <ATen/Version.h>
#include <fmt/format.h>

#include "common/base/version.h"
#include "kernels/instruction_sets.h"
#include "kernels/numbers_version.h"

namespace dex {
namespace {

// libtorch tells its version only among its settings: "..., TORCH_VERSION=2.11.0, ...".
std::string torch_version() {
  const std::string settings = at::show_config(), name = "TORCH_VERSION=";
  const auto found = settings.find(name);
  if (found == std::string::npos) return "of unknown version";
  const auto start = found + name.size();
  return settings.substr(start, settings.find_first_of(", \n", start) - start);
}

}  // namespace

std::string about() {
  const std::string_view cuda = DEX_CUDA_VERSION;
  return fmt::format(
      "dex {}\n"
      "commit        {}\n"
      "libraries     libtorch {}, HDF5 {}, SentencePiece {}, {}\n"
      "numbers       version {}\n"
      "instructions  {}",
      version(), commit(), torch_version(), DEX_HDF5_VERSION, DEX_SENTENCEPIECE_VERSION,
      cuda.empty() ? "no CUDA" : fmt::format("CUDA {}", cuda), kNumbersVersion, instruction_sets());
}

}  // namespace dex
