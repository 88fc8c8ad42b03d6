// From a ShareGPT file to a data set of token shards, in bounded memory, on any number of threads
// with the same bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/sample.h"

namespace dex {

struct PrepareOptions {
  // `out` must be absent or empty; it appears whole or not at all
  std::filesystem::path data, out;
  std::size_t max_len = 1024;          // tokens of a sample
  bool allow_truncated = false;        // take the whole records of a cut file
  std::optional<std::uint64_t> limit;  // look at no more records than this
  // share of chats, chosen by a hash of the id without its part number
  double held_out = 0.02;
  int threads = 1;
  // files of answers that take the place of the conversations' own
  std::vector<std::filesystem::path> answers;
};

// `asked`, or where nothing is asked the default, but no more than the model has positions. 0: not
// known. Error(usage) when more is asked for.
std::size_t sample_length(std::optional<std::size_t> asked, std::int64_t positions);

// Error(usage) naming the option, the value and what is wanted
void check(const PrepareOptions& options);

struct Renderer {  // a chat template bound to a tokenizer, and what the shards say about the two
  Render render;
  std::string model, tokenizer_digest, template_name, template_digest;
  std::int64_t vocabulary = 0;
  bool shows_reasoning = false;  // an answer's reasoning has a place in the template
};
// Whether the template leaves out reasoning that the messages have.
bool hides_reasoning(const Renderer& renderer, std::span<const Message> messages);

struct PrepareReport {
  Manifest manifest;
  double seconds = 0;
};

// With answers a sample ends with the last question that has one. Besides the shards writes
// skipped.jsonl: record number, id and reason of every record that gave no sample, and where a
// record could not be read its byte in the file and what is wrong with it. Error(io) when the file
// is cut (unless allowed) or altered between its records, Error(usage) when no sample is left.
PrepareReport prepare(const PrepareOptions& options, const Renderer& renderer);

}  // namespace dex
