#include "decode/decoder.h"

#include <algorithm>

#include "common/base/error.h"

namespace dex {

std::vector<Token> DecodeResult::ids() const {
  std::vector<Token> ids;
  for (const auto& t : tokens) ids.push_back(t.token);
  return ids;
}

std::vector<Token> DecodeResult::text_ids() const {
  auto ids = this->ids();
  if (stop_id) ids.pop_back();
  return ids;
}

int room_for(const Model& model, std::span<const Token> prompt, const Limits& limits) {
  require(!prompt.empty(), ExitCode::usage, "the prompt has no tokens, wanted at least 1");
  require(limits.max_tokens >= 0, ExitCode::usage, "max_tokens is {}, wanted 0 or more",
          limits.max_tokens);
  const auto size = std::int64_t(prompt.size());
  require(size < model.config.max_positions, ExitCode::usage,
          "the prompt has {} tokens, wanted fewer than the model's {} positions", size,
          model.config.max_positions);
  const std::int64_t known = model.embedding->matrix().out();
  for (Token id : prompt)
    require(id >= 0 && id < known, ExitCode::usage,
            "token id {} is outside the model's vocabulary of {}", id, known);
  return int(std::min<std::int64_t>(limits.max_tokens, model.config.max_positions - size));
}

bool StopRule::ends(const CommittedToken& token, DecodeResult& result) const {
  if (!limits.ignore_stop &&
      std::binary_search(model.stop_ids.begin(), model.stop_ids.end(), token.token)) {
    result.finish_reason = "stop";
    result.stop_id = token.token;
    return true;
  }
  result.finish_reason = "length";
  return int(result.tokens.size()) == room;
}

}  // namespace dex
