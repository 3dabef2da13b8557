#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/regex/regex.h"

namespace weft::text {

/// A range of bytes of a text.
using TextSpan = Regex::Match;
/// Finds spans in valid UTF-8: in order, not empty, without overlap.
using TextFinder = std::function<std::vector<TextSpan>(std::string_view)>;

/// Every place where `literal`, which must not be empty, stands; the first of overlapping ones.
TextFinder literal_finder(std::string literal);
TextFinder regex_finder(Regex regex);
/// Every single character with a bit of `UnicodeClass` in `mask`.
TextFinder class_finder(uint16_t mask);

/// A change of a whole text, valid UTF-8 to valid UTF-8: a normalizer of tokenizer.json.
using TextStep = std::function<std::string(std::string)>;

/// `text` after all steps. Throws ConfigError if they make it 16 times as long, as no published
/// normalizer does: steps of a damaged file could double it again and again.
std::string apply_steps(const std::vector<TextStep>& steps, std::string text);

/// Puts `prefix` before a text that is not empty.
TextStep prepend_step(std::string prefix);
/// Replaces each span by `content`.
TextStep replace_step(TextFinder find, std::string content);
/// Takes white space off the ends.
TextStep strip_step(bool left, bool right);

/// A part of a text that tokens do not cross.
struct Piece {
  std::string_view text;
  /// It begins where the whole input does.
  bool is_first = false;
};

/// The pieces of a text with the strings that steps had to make for them.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> owned;
};

/// A step that cuts or changes pieces: a pre-tokenizer of tokenizer.json.
using PieceStep = std::function<void(Pieces&)>;

/// What becomes of the spans that a split finds, as in Hugging Face tokenizers.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Cuts every piece at the spans found, or at those between them if `inverted`.
PieceStep split_step(TextFinder find, SplitBehavior behavior, bool inverted);
/// Puts `prefix` before each piece, or only the first, that does not begin with it.
PieceStep prefix_step(std::string prefix, bool only_first);
/// Replaces spans inside every piece.
PieceStep replace_in_pieces_step(TextFinder find, std::string content);

}  // namespace weft::text
