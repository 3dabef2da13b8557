#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/core/files/atomic_file.h"
#include "weft/text/tokenizer/tokenizer.h"
#include "weft/train/data/store/token_store.h"

namespace weft::train {

/// Writes a token store as its documents come. In memory are 8 bytes per document and, if there is
/// a mask, a bit per token. The path shows the old file or the whole new one.
class TokenStoreWriter {
 public:
  /// `expected_bytes` is about what will be written, for the message when the disk is full. Throws
  /// as core::AtomicFile, and ConfigError for a vocabulary that is empty or has more than 2^31 ids.
  TokenStoreWriter(const std::string& path, uint64_t vocab_size, uint64_t expected_bytes);

  /// Appends tokens to the document that is open, or to a new one. `is_learned` has one value per
  /// token or is empty: all. Throws ConfigError for an id outside the vocabulary, IoError.
  void add(const std::vector<text::TokenId>& ids, const std::vector<bool>& is_learned);
  /// The next tokens belong to another document. A document without tokens is none.
  void end_document() { is_open_ = false; }
  uint64_t num_tokens() const { return info_.num_tokens; }

  /// Writes the rest and makes the file visible. The last call. Throws IoError.
  void finish(uint64_t tokenizer_hash, uint64_t sources_hash, text::TokenId end_of_text);

 private:
  void add_bit(bool is_learned);
  void write(const void* data, size_t size);
  void align();
  void flush();

  core::AtomicFile file_;
  StoreInfo info_;
  std::vector<std::byte> buffer_;
  uint64_t written_ = 0;
  std::vector<uint8_t> mask_;
  std::vector<uint64_t> documents_;
  bool is_open_ = false;
};

}  // namespace weft::train
