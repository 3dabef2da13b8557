#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::text {

using TokenId = int32_t;

/// The merges of a byte pair encoding: which two tokens become which one, best first.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;
    TokenId result = -1;
  };

  /// Room for `count` merges.
  explicit MergeTable(size_t count);

  /// Adds or replaces the merge of a pair.
  void set(TokenId left, TokenId right, Merge merge);
  /// The merge of a pair; rank -1 if there is none.
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  // No id is negative, so no pair has this key.
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  size_t place_of(uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_ = 0;
};

/// Byte pair encoding of single pieces (Sennrich et al. 2016, arXiv 1508.07909): of all adjacent
/// pairs the one with the best rank is merged, the leftmost first, until none is left.
/// O(n log n) in the piece's length. Keeps its buffers between calls; use one per thread.
class BpeMerger {
 public:
  /// `merges` is kept by reference.
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  /// Appends what is left of `ids`, the tokens of a piece's single characters, when all is merged.
  void merge(std::span<const TokenId> ids, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    MergeTable::Merge merge;
    int32_t left;
    // The pair as it was; a different one by now means that the candidate is stale.
    TokenId left_id;
    TokenId right_id;
  };

  void load(std::span<const TokenId> ids);
  void offer(int32_t left);
  void apply(const Candidate& candidate);

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace weft::text
