// Which samples a training step takes: a pure function, so that resuming needs no state and no rank.
#pragma once
#include <cstdint>
#include <vector>

namespace dex {

// Steps until every one of `count` samples was taken once; the last one may be short.
std::uint64_t steps_per_epoch(std::uint64_t batch_size, std::uint64_t count);

// The samples of a step, 0 <= step < steps_per_epoch. Over an epoch each index in [0, count) comes exactly
// once, in an order that depends on (seed, epoch, count) alone.
std::vector<std::uint64_t> batch_indices(std::uint64_t seed, std::uint64_t epoch, std::uint64_t step,
                                         std::uint64_t batch_size, std::uint64_t count);

}  // namespace dex
