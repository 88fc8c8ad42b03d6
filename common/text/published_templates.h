// The published templates that a built-in renders alike, known by their text alone.
#pragma once
#include <string>
#include <string_view>

namespace dex {

struct PublishedTemplate {
  std::string_view sha256;  // of the text with LF line ends, less one at its end, as Jinja reads it
  const char* built_in;     // name of its built-in
  std::string_view bos,
      eos;             // what the built-in writes for bos_token and eos_token; "": reads none
  const char* models;  // it was published with
};

// Null where none has this text.
const PublishedTemplate* published_template(std::string_view text);

}  // namespace dex
