#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::generate {

/// Finds the first of some texts in a text that comes in pieces, and holds back what may yet become
/// one of them. What it gives out, together, is the text up to the earliest place where a stop text
/// ends; that stop text itself is left out.
class StopFinder {
 public:
  /// Throws ConfigError for an empty text.
  explicit StopFinder(std::vector<std::string> stops);

  /// The part of the text so far that no stop text can change, as far as it has not been given out.
  std::string push(std::string_view piece);
  /// What was held back: no more text comes. Empty if a stop text was found.
  std::string finish();
  /// Whether a stop text was found; nothing is given out from then on.
  bool is_found() const { return is_found_; }

 private:
  size_t held_length() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool is_found_ = false;
};

}  // namespace weft::generate
