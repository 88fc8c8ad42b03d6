// Plain (autoregressive) decoding: one row through every layer for each token. The reference.
#pragma once
#include <memory>

#include "common/model/stage_engine.h"
#include "decode/clock.h"
#include "decode/methods/method.h"

namespace dex {

struct ExploreOptions;

Method ar_method();
// `options`: where costs of rounds are kept.
Method ar_method(std::shared_ptr<const ExploreOptions> options);

std::unique_ptr<Decoder> plain_decoder(const Model& model, int threads);
// Over an engine that holds all layers. Model and clock must outlive it.
std::unique_ptr<Decoder> plain_decoder(const ModelInfo& model, std::unique_ptr<StageEngine> engine,
                                       const Clock& clock);

}  // namespace dex
