#include "common/model/head_use.h"

#include "common/base/error.h"
#include "common/model/layer_shape.h"

namespace dex {

HeadUse parse_head_use(const std::string& name) {
  if (name == "auto") return HeadUse::automatic;
  if (name == "whole") return HeadUse::whole;
  require(name == "shared", ExitCode::usage, "--head is \"{}\", wanted auto, whole or shared",
          name);
  return HeadUse::shared;
}

bool shares_head(HeadUse use, const ModelConfig& config, int vocab, int explorers) {
  if (explorers == 1 || use == HeadUse::whole) return false;
  if (use == HeadUse::shared) return true;
  const LayerShape layer(config);
  const std::int64_t of_layer =
      layer.hidden * (layer.qkv_size() + layer.q_size() + 3 * layer.intermediate);
  return 4 * explorers * layer.hidden * vocab > of_layer * config.num_layers;
}

}  // namespace dex
