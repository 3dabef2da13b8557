#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer/text_steps.h"

namespace weft::text {

/// How one published family of tokenizers cuts text into the pieces that merges never cross.
struct PreTokenizer {
  /// The regular expression that the scanner is equal to.
  enum class Pattern { kGpt2, kLlama3, kQwen35, kGpt4o, kTekken };

  /// The name in a GGUF's `tokenizer.ggml.pre`.
  std::string_view name = {};
  Pattern pattern = Pattern::kGpt2;
  /// The text is brought to Unicode normalization form C first.
  bool nfc = false;
  /// Each numeric character is cut out before the pattern is applied.
  bool isolate_digits = false;
  /// How many digits make one piece where the pattern counts them.
  size_t max_digits = 3;
  /// A piece that is a token as a whole is that token, whatever the merges say.
  bool ignore_merges = false;
  /// Files that do not say otherwise mean that texts begin with bos, as llama.cpp has it.
  bool adds_bos = false;
  /// In the place of `pattern`: regular expressions of which each cuts out what it finds in the
  /// pieces that those before it left. Static.
  std::span<const std::string_view> sequence = {};
};

/// The row named `name`. Throws ConfigError that lists the known names, beginning with `where`.
const PreTokenizer& find_pre_tokenizer(const std::string& name, const std::string& where);

/// The names of all rows.
std::vector<std::string_view> pre_tokenizer_names();

/// The steps of a tokenizer that cut as `row` says, without gaps. `row` is copied; its name must
/// live on.
std::vector<PieceStep> family_steps(const PreTokenizer& row);

/// The only step of a row without a sequence.
PieceStep family_step(const PreTokenizer& row);

/// The row without a name whose pattern has the text `pattern`, or nullptr: a shorter way than
/// `Regex` to the same pieces.
const PreTokenizer* find_pattern(std::string_view pattern);
/// The text of the regular expression that `row`, which has no sequence, cuts by, isolated digits
/// apart.
std::string_view pattern_text(const PreTokenizer& row);
/// All texts that `find_pattern` knows.
std::vector<std::string_view> known_patterns();

}  // namespace weft::text
