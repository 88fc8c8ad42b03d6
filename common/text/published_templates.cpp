#include "common/text/published_templates.h"

#include <algorithm>
#include <iterator>

#include "common/base/digest.h"

namespace dex {
namespace {

constexpr std::string_view kBegin3 = "<|begin_of_text|>";

// tests/golden/compare_templates.py compares each with what transformers makes of it, on
// conversations with thoughts, empty, blank and repeated turns, tags in a user's text, and system
// messages that are given, empty or absent. None stands here that was not.
constexpr PublishedTemplate kPublished[] = {
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2", "<s>", "</s>",
     "Llama 2 Chat"},
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3", kBegin3, "",
     "Llama 3 Instruct"},
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", "llama3", kBegin3, "",
     "the same, line feeds as escapes"},
    {"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1", kBegin3, "",
     "Llama 3.1 and 3.3 Instruct"},
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml", "", "",
     "OpenHermes 2.5 and others: ChatML"},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml", "", "",
     "the same, line feeds as escapes"},
    {"e5878d42c1903b9fa5b5a145a819c70fb2f680677eed46fe6e6e6bb206b1b8f8", "chatml", "", "",
     "ChatML with short names"},
    {"de4226db484f4669473e033a13f710ca8318fbc9b4203965f26db8534f09841f", "chatml", "", "",
     "the same, line feeds as escapes"},
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3", "", "",
     "Qwen3 of April 2025"},
    {"3802169b2a02b81e6adb7ab4f64f91ff02db753c8c3a64a01c35192d3a61d8d7", "qwen3-thinking", "", "",
     "Qwen3 Thinking 2507"},
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", "smollm2", "", "",
     "SmolLM2 Instruct"},
    {"de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221", "smollm2", "", "",
     "SmolLM2 Instruct, line feeds as escapes"},
};

}  // namespace

const PublishedTemplate* published_template(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::string digest = sha256_of(text);
  const auto* found = std::find_if(std::begin(kPublished), std::end(kPublished),
                                   [&](const auto& known) { return known.sha256 == digest; });
  return found == std::end(kPublished) ? nullptr : found;
}

}  // namespace dex
