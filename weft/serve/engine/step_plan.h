#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "weft/nn/logits/gumbel.h"

namespace weft::serve {

/// Prompts are read in pieces that begin at multiples of so many tokens, whatever else a step has:
/// how a prompt is cut is part of how its sums are rounded.
inline constexpr int64_t kPieceTokens = 128;
/// How many of them so many positions take; the last one may be a part.
constexpr int64_t pieces_of(int64_t positions) {
  return (positions + kPieceTokens - 1) / kPieceTokens;
}

/// What rank 0 wants to know of a part: nothing, the likeliest tokens that may follow its last one,
/// the one that is drawn, the logits of all, the last token's hidden state, or the sum of all
/// tokens'.
enum class Wanted : int64_t { kNothing, kLikeliest, kDrawn, kLogits, kHidden, kHiddenSum };

/// Tokens that one sequence reads in a step.
struct StepPart {
  /// Which sequence: where its keys and values are kept.
  int64_t slot = 0;
  /// The positions before the tokens, all read; what is kept behind them is forgotten.
  int64_t start = 0;
  Wanted wanted = Wanted::kNothing;
  std::vector<int64_t> tokens;
  /// Which adapter its sequence uses (nn::AdapterScope).
  int64_t adapter = 0;
  /// Of the likeliest tokens that may follow, how many are wanted.
  int64_t num_likeliest = 1;
  /// How the token that follows is drawn; those that follow guesses are the next draws.
  nn::GumbelDraw draw = {};
  /// How many of the tokens, at the end, are guesses of what is drawn next. Then they follow the
  /// sequence's last token alone, and what rank 0 wants to know it wants of each of them as well.
  int64_t num_guessed = 0;
  /// Of several known tokens: the layers that have run for them in steps before, and how many run
  /// in this one, 0 for all that are left. Until these have run, nothing is known of them, and the
  /// next step in which the sequence has a part goes on with the same tokens.
  int64_t first_layer = 0;
  int64_t num_layers = 0;

  /// Whether the tokens are read, with this step, by all layers.
  bool is_whole() const { return num_layers == 0; }
  /// How many layers run in this step, of a model with so many.
  int64_t layers_of(int64_t model_layers) const {
    return is_whole() ? model_layers - first_layer : num_layers;
  }
  /// Whether it reads on where everything before is read, rather than several known tokens.
  bool reads_last() const { return std::ssize(tokens) == 1 + num_guessed; }
};

/// Keys and values of one piece, which go from a page to a slot or back.
struct PageCopy {
  int64_t slot = 0;
  /// The piece's first position.
  int64_t start = 0;
  int64_t page = 0;
};

/// All that the ranks do in a step, in this order: slots give up their memory, pages are copied to
/// slots, behind the positions that these keep, parts are read, at most one of each sequence, and
/// what was read goes to pages. Rank 0 decides it.
struct StepPlan {
  /// The last one; it has nothing else.
  bool ends = false;
  std::vector<PageCopy> loads;
  std::vector<StepPart> parts;
  std::vector<PageCopy> stores;
  /// Slots whose sequences have gone.
  std::vector<int64_t> freed = {};

  bool is_empty() const { return loads.empty() && parts.empty() && freed.empty(); }
};

/// What a step took on a rank, in seconds.
struct StepTimes {
  /// Sequences' last tokens, and what is wanted of all parts.
  double last_tokens = 0;
  /// The longer parts, with what goes to pages.
  double pieces = 0;
};

}  // namespace weft::serve
