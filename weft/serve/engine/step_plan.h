#pragma once

#include <cstdint>
#include <vector>

namespace weft::serve {

/// What rank 0 wants to know of a part's last token.
enum class Wanted : int64_t { kNothing, kLikeliest, kLogits };

/// Tokens that one sequence reads in a step.
struct StepPart {
  /// Which sequence: where its keys and values are kept.
  int64_t slot = 0;
  /// The positions before the tokens, all read; what is kept behind them is forgotten.
  int64_t start = 0;
  Wanted wanted = Wanted::kNothing;
  std::vector<int64_t> tokens;
};

/// All that the ranks do in a step: at most one part of each sequence. Rank 0 decides it.
struct StepPlan {
  /// The last one; it has no parts.
  bool ends = false;
  std::vector<StepPart> parts;
};

}  // namespace weft::serve
