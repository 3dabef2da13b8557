#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/shard/split.h"
#include "weft/train/data/mapped_file.h"

namespace weft::train {

/// What the end of a token store's file says about it.
struct StoreInfo {
  /// Ids are below.
  uint64_t vocab_size = 0;
  uint64_t num_tokens = 0;
  uint64_t num_documents = 0;
  /// 1 if some tokens are not to be learned, else 0.
  uint64_t has_mask = 0;
  /// DocumentTokenizer::hash with the options that documents depend on.
  uint64_t tokenizer_hash = 0;
  /// hash_sources of the files.
  uint64_t sources_hash = 0;
  /// Ends documents; -1: nothing does.
  int64_t end_of_text = -1;

  /// Bytes per token: 2 if all ids fit, else 4.
  uint64_t token_bytes() const { return vocab_size <= 65536 ? 2 : 4; }
  bool operator==(const StoreInfo&) const = default;
};

/// The tokens of a corpus, one document after another, in a file that is mapped into memory.
///
/// The file, little-endian, each part padded with zeros to a multiple of 8 bytes:
///
///     "wefttoks", version (8)
///     tokens         2 or 4 bytes each
///     mask           if there is one: a bit per token, lowest first, 1 = to be learned
///     documents      8 bytes each: where it begins, in tokens
///     StoreInfo      7 numbers of 8 bytes, in its order
///     hash (8)       of StoreInfo
///     "wefttoke"
///
/// Whoever has it open keeps the file that they opened: a new one takes its name. Reading is safe
/// from several threads.
class TokenStore {
 public:
  /// Checks the file's parts against its size before anything is taken from them, and that the
  /// documents ascend. Throws FormatError and IoError.
  static std::shared_ptr<const TokenStore> open(const std::string& path);
  /// Whether the file begins as a token store does, of whatever version; false if there is none.
  static bool is_store(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const StoreInfo& info() const { return info_; }
  int64_t num_tokens() const { return static_cast<int64_t>(info_.num_tokens); }
  int64_t num_documents() const { return static_cast<int64_t>(info_.num_documents); }
  int64_t vocab_size() const { return static_cast<int64_t>(info_.vocab_size); }
  /// Equal for stores of the same tokens: for checkpoints, whose position counts in one of them.
  uint64_t identity() const;

  /// All of the following expect indices that exist.
  /// The token at `index`. Throws FormatError if it is not below the vocabulary's size.
  int64_t token(int64_t index) const;
  bool is_learned(int64_t index) const;
  /// Where a document's tokens lie.
  shard::Range document(int64_t index) const;
  /// The document that a token is in. O(log documents).
  int64_t document_of(int64_t token) const;

 private:
  explicit TokenStore(const std::string& path);
  void read_info();
  void find_parts();
  void check_documents() const;

  MappedFile file_;
  StoreInfo info_;
  /// One of these is empty.
  std::span<const uint16_t> short_tokens_;
  std::span<const uint32_t> long_tokens_;
  std::span<const uint8_t> mask_;
  std::span<const uint64_t> documents_;
};

}  // namespace weft::train
