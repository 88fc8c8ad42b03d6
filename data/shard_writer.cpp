#include "data/shard_writer.h"

#include <algorithm>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/h5.h"

namespace dex {

// Open until finish(): the counts that every shard carries are known only then.
struct ShardWriter::Shard {
  explicit Shard(const std::filesystem::path& path) : writer(path) {
    facts.file = path.filename().string();
    const std::uint64_t zero = 0;
    writer.append("offsets", std::span(&zero, 1));
  }

  void add(const Sample& sample) {
    const std::vector<std::uint32_t> ids(sample.tokens.begin(), sample.tokens.end());
    facts.samples += 1;
    facts.tokens += ids.size();
    facts.supervised +=
        std::uint64_t(std::count(sample.supervised.begin(), sample.supervised.end(), 1));
    writer.append("tokens", std::span<const std::uint32_t>(ids));
    writer.append("supervised", std::span<const std::uint8_t>(sample.supervised));
    writer.append("offsets", std::span<const std::uint64_t>(&facts.tokens, 1));
  }

  H5Writer writer;
  ShardFile facts;
};

ShardWriter::ShardWriter(std::filesystem::path dir, std::int64_t vocabulary,
                         std::uint64_t tokens_per_shard)
    : dir_(std::move(dir)), vocabulary_(vocabulary), tokens_per_shard_(tokens_per_shard) {}
ShardWriter::~ShardWriter() = default;

ShardWriter::Shard& ShardWriter::shard_for(const std::string& split) {
  auto& shards = splits_[split];
  if (shards.empty() || shards.back()->facts.tokens >= tokens_per_shard_)
    shards.push_back(
        std::make_unique<Shard>(dir_ / fmt::format("{}-{:05}.h5", split, shards.size())));
  return *shards.back();
}

void ShardWriter::add(const std::string& split, const Sample& sample) {
  require(sample.tokens.size() == sample.supervised.size(), ExitCode::bug,
          "a sample has {} tokens and {} marks", sample.tokens.size(), sample.supervised.size());
  for (Token id : sample.tokens)
    require(id >= 0 && id < vocabulary_, ExitCode::bug, "token id {} outside the vocabulary of {}",
            id, vocabulary_);
  shard_for(split).add(sample);
}

void ShardWriter::finish(const ShardFacts& facts, const SourceNote& source,
                         const std::string& model) {
  Manifest manifest{facts, source, model, {{"train", {}}, {"held_out", {}}}};
  for (auto& [split, shards] : splits_) {
    for (auto& shard : shards) {
      H5Writer& writer = shard->writer;
      writer.attribute("format", std::string("dex token shard 1"));
      writer.attribute("tokenizer_digest", facts.tokenizer_digest);
      writer.attribute("template_name", facts.template_name);
      writer.attribute("template_digest", facts.template_digest);
      writer.attribute("source_digest", facts.source_digest);
      writer.attribute("vocabulary", facts.vocabulary);
      writer.attribute("max_len", facts.max_len);
      for (const auto& [name, count] : facts.counts) writer.attribute("count." + name, count);
      writer.close();
      const auto path = dir_ / shard->facts.file;
      shard->facts.bytes = std::filesystem::file_size(path);
      shard->facts.sha256 = sha256_of_file(path);
      manifest.splits[split].push_back(shard->facts);
    }
  }
  write_manifest(dir_, manifest);
}

}  // namespace dex
