// Plain decoding with drafts: what followed the same words before goes through the model beside the
// row that plain decoding would send, and is committed where the model says the same.
#pragma once
#include <memory>
#include <vector>

#include "common/model/stage_engine.h"
#include "decode/methods/dex.h"
#include "decode/methods/method.h"

namespace dex {

Method lookup_method(std::shared_ptr<const ExploreOptions> options);

// The model's stages as one, on `threads`.
std::vector<std::unique_ptr<StageEngine>> whole_model(const Model& model, int threads);
std::unique_ptr<Decoder> lookup_decoder(const Model& model, LatticePolicy policy, int threads);

}  // namespace dex
