#pragma once

namespace weft::cli {

/// How the reading of a line ended.
enum class LineEnd {
  kTyped,
  /// A line break that was pasted: more of the same text follows.
  kPasted,
  /// A signal came: Ctrl-C, or one that ends the program.
  kInterrupted,
  /// No more input.
  kEnd,
};

}  // namespace weft::cli
