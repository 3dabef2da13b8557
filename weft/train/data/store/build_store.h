#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/train/data/document_tokens.h"
#include "weft/train/data/store/token_store.h"

namespace weft::train {

/// A corpus and where its tokens are kept.
struct StoreOptions {
  /// Training files, in order: .txt or .jsonl, see documents.h.
  std::vector<std::string> sources;
  TextFiles text_files = TextFiles::kOneDocument;
  /// The token store's path.
  std::string path;
  /// Called now and then while the store is made, with the sources' bytes read and in all.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

/// Whether there is a store at the path that was made of these sources, as they are now, by this
/// tokenizer. A damaged one is not. Reads the sources once (for their hash), writes nothing. Throws
/// FormatError if there is another kind of file at the path, and as check_sources and core::File.
bool is_fresh(const StoreOptions& options, const DocumentTokenizer& tokenizer);

/// Opens the store if it is fresh; otherwise makes it and takes the place of the old one. On
/// several ranks one calls this while the others wait, and then they call TokenStore::open. Throws
/// FormatError that names a bad document's file and line, or if the sources have no tokens, and
/// IoError.
std::shared_ptr<const TokenStore> open_or_build(const StoreOptions& options,
                                                const DocumentTokenizer& tokenizer);

}  // namespace weft::train
