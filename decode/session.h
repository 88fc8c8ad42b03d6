// A model ready to decode: backbone and adapters from one set of options.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "decode/methods/ar.h"
#include "decode/methods/dex.h"

namespace dex {

struct SessionOptions {
  std::filesystem::path model, adapters;
  std::string depths, chat_template, dtype = "f32";
  TemplateOptions rendering;
  int threads = 0;  // in all; 0: one per core
};

class Session {
 public:
  // All options are checked before weights are read, by `check` those of the methods: Error(usage)
  // with the value seen.
  explicit Session(const SessionOptions& options,
                   const std::function<void(const DepthSet&)>& check = {});

  const Model& model() const { return *model_; }
  const Adapters& adapters() const { return adapters_; }
  bool has_adapters() const;
  std::unique_ptr<Decoder> plain() const { return plain_decoder(*model_, threads_); }
  int threads() const { return threads_; }
  std::string model_name() const;  // of its directory

  // Ids of a raw prompt (with the token the model's files put before a text) or of a conversation
  // to be answered.
  std::vector<Token> prompt_ids(const std::string& text, bool parse_special) const;
  std::vector<Token> chat_ids(std::span<const Message> messages) const;
  // The model's or the one that was asked for; from one thread at a time.
  const ChatTemplate& chat_template() const;
  const Tokenizer& tokenizer() const;  // Error(usage) when the model has none

 private:
  void warn_of_two_begins() const;  // once

  SessionOptions options_;
  std::unique_ptr<std::atomic_flag> two_begins_ = std::make_unique<std::atomic_flag>();
  int threads_;
  mutable std::optional<ChatTemplate> chat_template_;
  std::unique_ptr<Model> model_;
  Adapters adapters_;
};

}  // namespace dex
