// A small SentencePiece model, trained on the spot as Llama 2's was: BPE, byte fallback, no
// normalization, a dummy space.
#pragma once
#include <sentencepiece_trainer.h>

#include <fstream>
#include <random>
#include <stdexcept>
#include <string>

#include "tests/support/temp_dir.h"

namespace dex::test {

// Writes tokenizer.model into dir. `options` override the settings named below: the library takes
// the first of two.
inline void train_sentencepiece(const TempDir& dir, const std::string& options = "") {
  std::mt19937 random(7);
  const char* const words[] = {"the",     "answer", "is",    "a",     "tokenizer", "that",
                               "returns", "words",  "hello", "world", "running",   "runs",
                               "def",     "return", "list",  "of",    "numbers",   "42",
                               "1234",    "(x):",   "end."};
  std::string corpus;
  for (int line = 0; line < 2000; ++line) {
    for (int i = 0; i < 12; ++i)
      corpus += std::string(i ? 1 + (random() % 9 == 0) * 3 : 0, ' ') +
                words[random() % std::size(words)];
    corpus += '\n';
  }
  dir.write("corpus.txt", corpus);
  const std::string prefix = (dir / "tokenizer").string();
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      options + " --input=" + (dir / "corpus.txt").string() + " --model_prefix=" + prefix +
      " --model_type=bpe --vocab_size=420 --byte_fallback=true --normalization_rule_name=identity"
      " --remove_extra_whitespaces=false --allow_whitespace_only_pieces=true "
      "--hard_vocab_limit=false"
      " --split_digits=true --minloglevel=2");
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace dex::test
