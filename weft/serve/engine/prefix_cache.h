#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft::serve {

/// How many pages a server may keep, and what decides their contents beside tokens.
struct PrefixCacheOptions {
  /// 0: nothing is kept.
  int64_t num_pages = 0;
  /// Of all ranks together.
  int64_t page_bytes = 0;
  /// The model, with what stands beside it for sequences that name no adapter.
  std::string model;
};

/// What was kept and what that has saved, in tokens where nothing else is said.
struct PrefixCacheState {
  /// Of prompts, and those of them that were not read.
  int64_t num_asked = 0;
  int64_t num_saved = 0;
  /// Pages in use, and those whose contents gave way to others.
  int64_t num_pages = 0;
  int64_t num_evicted = 0;
};

/// A piece of a prompt with all that stands before it and the adapter: a digest that nobody can
/// make for another prompt.
using PieceKey = std::string;

/// Knows, on rank 0 alone, which pages keep the keys and values of which whole pieces of prompts.
/// What was used least recently gives way, the end of a prompt before its beginning. Not for
/// several threads.
class PrefixCache {
 public:
  explicit PrefixCache(PrefixCacheOptions options);

  /// One for each whole piece of the prompt of a sequence that uses this adapter; none where
  /// nothing is kept.
  std::vector<PieceKey> keys_of(std::span<const int64_t> prompt, int64_t adapter = 0) const;
  /// The page of a piece.
  std::optional<int64_t> find(const PieceKey& key) const;
  /// Counts pieces, the first ones of one prompt, as used now.
  void use(std::span<const PieceKey> keys);
  /// A page for the last of `keys`, the first ones of one prompt; none if those before it are not
  /// kept, for who would find it, or if they take all pages.
  std::optional<int64_t> add(std::span<const PieceKey> keys);

  /// Counts tokens of a prompt that is to be read, and those that pages save.
  void count_asked(int64_t tokens) { state_.num_asked += tokens; }
  void count_saved(int64_t tokens) { state_.num_saved += tokens; }
  const PrefixCacheState& state() const { return state_; }

 private:
  struct Entry {
    PieceKey key;
    int64_t page;
  };

  std::optional<int64_t> free_page(std::span<const PieceKey> keys);

  PrefixCacheOptions options_;
  PieceKey root_;
  /// The most recently used first.
  std::list<Entry> entries_;
  std::unordered_map<PieceKey, std::list<Entry>::iterator> places_;
  PrefixCacheState state_;
};

}  // namespace weft::serve
