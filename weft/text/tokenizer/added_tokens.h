#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/bpe/bpe.h"
#include "weft/text/bpe/spelling_trie.h"
#include "weft/text/tokenizer/text_steps.h"

namespace weft::text {

/// Longest spelling of an added token, in bytes: each may be compared at every place of a text.
inline constexpr size_t kMaxAddedToken = 1024;

/// A token that is found in a text before all else, as in tokenizer.json's `added_tokens`.
struct AddedToken {
  std::string content;
  TokenId id = -1;
  bool is_special = false;
  /// It is looked for in the normalized text, and its spelling is normalized as well.
  bool is_normalized = false;
  /// It swallows the white space before it (after it).
  bool strips_left = false;
  bool strips_right = false;
  /// Not inside a word.
  bool is_single_word = false;
  /// It never comes out of what a user typed.
  bool is_guarded = false;
  /// For a change: a token that exists already stays as it is.
  bool keeps_options = false;
};

/// Which bytes of a text come from a chat template, where guarded tokens count, and which were
/// typed.
class Stretches {
 public:
  Stretches() = default;
  /// One stretch of `size` bytes.
  Stretches(size_t size, bool is_template) { add(size, is_template); }

  /// Adds `size` bytes at the end.
  void add(size_t size, bool is_template);
  bool is_template(size_t at) const { return list_[index_of(at)].is_template; }
  /// End of the stretch around `at`.
  size_t end(size_t at) const { return list_[index_of(at)].end; }
  bool is_uniform() const { return list_.size() <= 1; }
  /// Those of the bytes `begin` to `end`, which must not be empty.
  Stretches slice(size_t begin, size_t end) const;
  /// Those of `normalize(text)`. Where a border is blurred, bytes count as typed.
  Stretches normalized(std::string_view text,
                       const std::function<std::string(std::string)>& normalize) const;

 private:
  struct Stretch {
    size_t end;
    bool is_template;
  };
  size_t index_of(size_t at) const;

  std::vector<Stretch> list_;
};

/// A part of a text: an added token, or text without one (id -1).
struct AddedSpan {
  TextSpan span;
  TokenId id = -1;
};

/// Finds added tokens as Hugging Face tokenizers does: the leftmost, of those the longest.
class AddedTokenFinder {
 public:
  /// Looks for `pattern`, the token's spelling or what became of it. Of equal ones the first
  /// counts.
  void add(const std::string& pattern, const AddedToken& token);
  bool has_guarded() const { return has_guarded_; }
  bool is_empty() const { return tokens_.empty(); }
  /// Cuts `text`, valid UTF-8, into added tokens and what lies between. The tokens may overlap
  /// where white space that one took along belongs to the next.
  std::vector<AddedSpan> cut(std::string_view text, const Stretches& stretches) const;

 private:
  struct Found {
    const AddedToken* token = nullptr;
    size_t size = 0;
  };
  Found find_at(std::string_view text, size_t at, const Stretches& stretches, size_t& skip) const;
  bool is_allowed(const AddedToken& token, std::string_view text, const TextSpan& span) const;

  SpellingTrie trie_;
  std::vector<AddedToken> tokens_;
  bool has_guarded_ = false;
};

}  // namespace weft::text
