// A model ready to decode: backbone, adapters, and the decoders over them, from one set of options.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "decode/decoder.h"

namespace CLI {
class App;
}

namespace dex {

struct SessionOptions {
  std::filesystem::path model, adapters;
  std::string depths, chat_template, dtype = "f32", devices, expand = "budget";
  int threads = 0, rows = 8, width = 8;
  bool no_decs = false, single_exit = false;

  // --model --adapters --depths --template --dtype --threads
  void add_model_options(CLI::App& command);
  // --expand --rows --width --no-decs --single-exit --devices
  void add_explorer_options(CLI::App& command);
  LatticePolicy policy() const;  // Error(usage) on a contradiction
};

class Session {
 public:
  // All options are checked before weights are read, those of explorers too: Error(usage) with the
  // value seen.
  explicit Session(const SessionOptions& options);

  const Model& model() const { return *model_; }
  const Adapters& adapters() const { return adapters_; }
  bool has_adapters() const;
  std::unique_ptr<Decoder> plain() const;
  std::unique_ptr<Decoder> dex() const;
  int threads() const { return threads_; }

  // Ids of a raw prompt (with the token the model's files put before a text) or of a conversation
  // to be answered.
  std::vector<Token> prompt_ids(const std::string& text, bool parse_special) const;
  std::vector<Token> chat_ids(std::span<const Message> messages) const;
  const Tokenizer& tokenizer() const;  // Error(usage) when the model has none

 private:
  SessionOptions options_;
  LatticePolicy policy_;
  int threads_;
  std::vector<int> cores_;  // of the explorers; empty: not bound
  std::unique_ptr<Model> model_;
  Adapters adapters_;
};

}  // namespace dex
