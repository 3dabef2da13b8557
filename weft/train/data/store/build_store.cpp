#include "weft/train/data/store/build_store.h"

#include <filesystem>
#include <optional>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/core/log.h"
#include "weft/train/data/store/token_store_writer.h"

namespace weft::train {
namespace {

using core::FormatError;

uint64_t rules_hash(const StoreOptions& options, const DocumentTokenizer& tokenizer) {
  const auto kind = static_cast<uint64_t>(options.text_files);
  return core::hash_bytes(std::as_bytes(std::span(&kind, 1)), tokenizer.hash());
}

void build(const StoreOptions& options, const DocumentTokenizer& tokenizer) {
  const uint64_t total = check_sources(options.sources);
  DocumentReader reader(options.sources, options.text_files);
  // An estimate: a token stands for a few bytes and takes 2 or 4.
  TokenStoreWriter writer(options.path, tokenizer.tokenizer().vocab_size(), total);
  Document document;
  uint64_t reported = 0;
  while (reader.next(document)) {
    const DocumentTokens tokens = tokenizer.encode(document);
    writer.add(tokens.ids, tokens.is_learned);
    if (tokens.is_last) writer.end_document();
    constexpr uint64_t kReportBytes = uint64_t{1} << 20;
    if (options.progress && reader.bytes_read() - reported >= kReportBytes) {
      reported = reader.bytes_read();
      options.progress(reported, total);
    }
  }
  core::check<FormatError>(writer.num_tokens() > 0, options.sources.front(),
                           ": expected documents, got files without text; name other files");
  writer.finish(rules_hash(options, tokenizer), reader.hash(), tokenizer.end_of_text());
  if (options.progress) options.progress(total, total);
}

// Nothing for a damaged store.
std::optional<StoreInfo> readable_info(const std::string& path) {
  try {
    return TokenStore::open(path)->info();
  } catch (const FormatError& damage) {
    core::log(core::LogLevel::kWarn, damage.what());
    return std::nullopt;
  }
}

}  // namespace

bool is_fresh(const StoreOptions& options, const DocumentTokenizer& tokenizer) {
  check_sources(options.sources);
  std::error_code error;
  if (!std::filesystem::exists(options.path, error)) return false;
  core::check<FormatError>(TokenStore::is_store(options.path), options.path,
                           ": expected a token store or no file, got another kind of file; name "
                           "another path for the tokens");
  const std::optional<StoreInfo> info = readable_info(options.path);
  return info && info->tokenizer_hash == rules_hash(options, tokenizer) &&
         info->sources_hash == hash_sources(options.sources);
}

std::shared_ptr<const TokenStore> open_or_build(const StoreOptions& options,
                                                const DocumentTokenizer& tokenizer) {
  if (!is_fresh(options, tokenizer)) build(options, tokenizer);
  return TokenStore::open(options.path);
}

}  // namespace weft::train
