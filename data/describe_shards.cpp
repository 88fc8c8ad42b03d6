#include "data/describe_shards.h"

#include "common/base/error.h"
#include "data/token_shards.h"

namespace dex {
namespace {

std::string split_text(const std::string& name, const std::vector<ShardFile>& files) {
  const SplitTotals t = totals_of(files);
  return fmt::format("{:<9} {} samples, {} tokens, {} supervised, {} shards\n", name, t.samples,
                     t.tokens, t.supervised, t.shards);
}

std::string facts_text(const Manifest& manifest) {
  const ShardFacts& facts = manifest.facts;
  const SourceNote& source = manifest.source;
  std::string text = fmt::format("source    {}, {} bytes, SHA-256 {}\n", source.name, source.bytes,
                                 facts.source_digest);
  if (source.cut)
    text += fmt::format("          cut: record {} at byte {} is incomplete\n", source.cut_record,
                        source.cut_offset);
  text += fmt::format("tokenizer SHA-256 {}, vocabulary {}, from {}\n", facts.tokenizer_digest,
                      facts.vocabulary, manifest.model);
  text += fmt::format("template  {}, digest {}\n", facts.template_name, facts.template_digest);
  text += fmt::format("max_len   {}\n", facts.max_len);
  for (const auto& [name, count] : facts.counts) text += fmt::format("{:<24} {}\n", name, count);
  return text;
}

std::string first_sample_text(const TokenShards& train) {
  if (train.size() == 0) return "";
  try {
    const auto tokenizer = load_tokenizer(train.manifest().model);
    if (tokenizer->digest() != train.facts().tokenizer_digest)
      return "the tokenizer has changed: no text shown\n";
    return "first training sample, targets in ⟦⟧:\n" + masked_text(train.sample(0), *tokenizer) +
           "\n";
  } catch (const Error& error) {
    return fmt::format("no text shown: {}\n", error.what());
  }
}

}  // namespace

std::string masked_text(const Sample& sample, const Tokenizer& tokenizer) {
  std::string text;
  bool inside = false;
  std::vector<Token> run;  // plain ids of one kind: decoded together, they give whole characters
  const auto flush = [&] {
    text += tokenizer.decode(run, false);
    run.clear();
  };
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const Token id = sample.tokens[i];
    if ((sample.supervised[i] != 0) != inside) {
      flush();
      text += inside ? "⟧" : "⟦";
      inside = !inside;
    }
    if (tokenizer.is_special(id)) {
      flush();
      text += tokenizer.text_of_id(id);
    } else {
      run.push_back(id);
    }
  }
  flush();
  return text + (inside ? "⟧" : "");
}

std::string describe_shards(const std::filesystem::path& dir) {
  const TokenShards train = TokenShards::open(dir, "train"),
                    held_out = TokenShards::open(dir, "held_out");
  const Manifest& manifest = train.manifest();
  std::string text = fmt::format("token shards {}\ndigest    {}\n", dir.string(), train.digest());
  text += split_text("train", manifest.splits.at("train")) +
          split_text("held_out", manifest.splits.at("held_out"));
  return text + facts_text(manifest) + first_sample_text(train);
}

}  // namespace dex
