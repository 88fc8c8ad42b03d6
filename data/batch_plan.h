// Which samples a training step takes and how they share its micro-batches: pure functions, so that
// resuming needs no state and no rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dex {

// Steps until every one of `count` samples was taken once; the last one may be short.
std::uint64_t steps_per_epoch(std::uint64_t batch_size, std::uint64_t count);

// The samples of a step, 0 <= step < steps_per_epoch. Over an epoch each index in [0, count) comes
// exactly once, in an order that depends on (seed, epoch, count) alone.
std::vector<std::uint64_t> batch_indices(std::uint64_t seed, std::uint64_t epoch,
                                         std::uint64_t step, std::uint64_t batch_size,
                                         std::uint64_t count);

// Splits things of a cost into `parts` of near-equal cost, none of them empty or of more than
// `most` things: into two halves, each half into its halves, and so on, so that neighbouring parts
// together are near-equal, too. Returns their indices. Wants parts <= cost.size() <= parts * most.
std::vector<std::vector<std::size_t>> split_evenly(std::span<const double> cost, std::size_t parts,
                                                   std::size_t most);

}  // namespace dex
