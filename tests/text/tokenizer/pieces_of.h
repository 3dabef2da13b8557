#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer/text_steps.h"

namespace weft::text {

/// The pieces that steps cut a text into.
inline std::vector<std::string> pieces_of(const std::vector<PieceStep>& steps,
                                          std::string_view text) {
  Pieces pieces;
  pieces.list.push_back({text, true});
  for (const PieceStep& step : steps) step(pieces);
  std::vector<std::string> texts;
  for (const Piece& piece : pieces.list) texts.emplace_back(piece.text);
  return texts;
}

}  // namespace weft::text
