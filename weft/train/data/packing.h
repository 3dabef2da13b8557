#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "weft/shard/split.h"
#include "weft/train/data/store/token_store.h"

namespace weft::train {

/// Targets that take no part in the loss.
inline constexpr int64_t kIgnoredTarget = -100;

/// How sequences are made of documents.
enum class Packing {
  /// Documents laid end to end and cut into sequences of equal length; attention and positions go
  /// on across documents, and the first token of a document is a target of the one before.
  kThrough,
  /// The same sequences, but attention stays within a document (`documents` says in which), its
  /// positions begin at 0, and its first token is no target: nothing before it is seen.
  kWithin,
  /// Each document a sequence of its own, padded, or cut to the sequence's length.
  kAlone,
};

/// Sequences to make.
struct PackOptions {
  /// Tokens per sequence, at least 1.
  int64_t length = 0;
  Packing packing = Packing::kThrough;
};

/// One sequence: spans of `length` values each.
struct SequenceSpans {
  std::span<int64_t> ids;
  /// The token after each of ids, or kIgnoredTarget: where it is not to be learned, is another
  /// document's (kWithin), or is padding.
  std::span<int64_t> targets;
  /// kWithin: the number of the document within the sequence, from 0; else 0.
  std::span<int64_t> documents;
  /// From 0; with kWithin from each document's first token in this sequence.
  std::span<int64_t> positions;
};

/// Sequences out of a range of a store's tokens, made when they are asked for. Sequence i of
/// kThrough and kWithin has the tokens [i*length, (i+1)*length) of the range as ids and those one
/// further as targets, so that over all sequences each token but the range's first is a target
/// once. A document that continues in the next sequence can't be attended to from there. Padding,
/// only at the end of a sequence, has the id of end-of-text and belongs to the document before it.
class Packer {
 public:
  /// With kAlone the range must begin and end with documents. Throws ConfigError for a length below
  /// 1 or a range that is not the store's or makes no sequence.
  Packer(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range);

  int64_t length() const { return options_.length; }
  int64_t num_sequences() const { return num_sequences_; }
  /// kAlone: documents of more than length + 1 tokens, whose ends are never seen. Else 0.
  int64_t num_cut() const;
  /// Makes sequence `index`. Throws FormatError if the store holds an id that it can't.
  void fill(int64_t index, const SequenceSpans& out) const;

 private:
  shard::Range source(int64_t index) const;

  std::shared_ptr<const TokenStore> store_;
  PackOptions options_;
  shard::Range range_;
  int64_t num_sequences_ = 0;
  int64_t first_document_ = 0;
};

/// All tokens of a store.
shard::Range all_tokens(const TokenStore& store);

/// Cuts a store in two: what is trained on, and at its end about `fraction` of the tokens to
/// evaluate with. The cut is between two documents where one is near (at most a tenth of the
/// evaluation's tokens away), with kAlone always; otherwise within a document. Throws ConfigError
/// unless 0 < fraction < 1 and both parts have something to learn.
std::pair<shard::Range, shard::Range> split_tokens(const TokenStore& store, double fraction,
                                                   Packing packing);

}  // namespace weft::train
