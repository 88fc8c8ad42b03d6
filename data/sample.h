// One training sample: ids and which of them are targets.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/text/chat_template.h"

namespace dex {

struct Sample {
  std::vector<Token> tokens;
  std::vector<std::uint8_t> supervised;  // 1: token i is a target, so its loss row is i-1
};

// Thread-safe; what ChatTemplate::render does with a tokenizer.
using Render = std::function<RenderedChat(std::span<const Message>)>;

// The first `max_len` tokens of the rendered messages, the same ids as if all text had been
// tokenised: long text is cut only where no tokenizer joins what stands on both sides, well past
// what the limit needs.
Sample render_sample(std::span<const Message> messages, std::size_t max_len, const Render& render);

// The same for messages whose last answer is not at its end: that end is left out, so it is no
// target.
Sample render_unfinished_sample(std::span<const Message> messages, std::size_t max_len,
                                const Render& render);

bool has_target(const Sample& sample);  // a supervised token with a row before it

}  // namespace dex
