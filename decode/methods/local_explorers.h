// Explorers in threads of this process, one for each engine (paper, Algorithm 1).
#pragma once
#include <memory>
#include <vector>

#include "decode/decoder.h"
#include "decode/explorer/explorer.h"

namespace dex {

// Explorer k runs on engines[k], bound to core cores[k % size]; no cores leave it to the system.
// The model must outlive the decoder.
std::unique_ptr<Decoder> local_explorers(const ModelInfo& model, ExplorePlan plan,
                                         std::vector<std::unique_ptr<StageEngine>> engines,
                                         std::vector<int> cores = {});

}  // namespace dex
