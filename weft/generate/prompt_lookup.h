#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace weft::generate {

/// Guesses how a text continues: as it did where its last tokens occurred before. Guesses become
/// longer while they are right, and stop for a while, each time a longer one, while none is. The
/// same calls give the same guesses on every machine. Source: Saxena 2023,
/// github.com/apoorvumang/prompt-lookup-decoding.
class PromptLookup {
 public:
  /// `text`: the tokens so far. At most `most` are guessed at a time; 0: never any.
  PromptLookup(std::span<const int64_t> text, int64_t most);

  /// The text's next token.
  void add(int64_t token);
  /// What may follow the text, at most `limit` tokens; to be asked once for each token or guess.
  std::vector<int64_t> guess(int64_t limit);
  /// How many of the last guess's tokens were right, up to the first wrong one.
  void learn(int64_t num_guessed, int64_t num_right);

 private:
  // The lengths of endings that are looked for, the longest first.
  static constexpr std::array<size_t, 2> kEndings = {3, 2};

  uint64_t key_of_end(size_t length) const;

  int64_t most_;
  std::vector<int64_t> text_;
  // For each length: where a text that ended so went on, the last time.
  std::array<std::unordered_map<uint64_t, size_t>, kEndings.size()> next_of_;
  int64_t length_;
  int64_t pause_ = 0;
  int64_t left_of_pause_ = 0;
};

}  // namespace weft::generate
