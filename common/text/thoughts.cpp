#include "common/text/thoughts.h"

#include "common/text/chat_spans.h"

namespace dex {

std::optional<Thoughts> thoughts_of(std::string_view content) {
  const std::size_t open = content.find(kThinkOpen), close = content.find(kThinkClose);
  if (close == std::string_view::npos || open > close || !is_blank_text(content.substr(0, open)))
    return std::nullopt;
  const std::size_t from = open + kThinkOpen.size();
  return Thoughts{content.substr(0, open), content.substr(from, close - from),
                  content.substr(close + kThinkClose.size())};
}

}  // namespace dex
