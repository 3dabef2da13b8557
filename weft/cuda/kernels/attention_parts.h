#pragma once

#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/kernels/attention.h"

/// attend() after heads are turned and cached: for this folder alone.
namespace weft::cuda {

/// For at most kFewTokens, a block for some heads of a row and a part of the positions.
void attend_few(const AttentionCall& call);
/// For more, a block for one head of a run of tokens, by tensor cores.
void attend_many(const AttentionCall& call);

/// What a row attends to.
struct Seen {
  int32_t begin, end;
};
/// That of a row of the pass; `*call.start` is read.
WEFT_BOTH Seen seen_by(const AttentionCall& call, int32_t row) {
  const int32_t end = *call.start + row % call.tokens + 1;
  return {call.window == 0 || call.window > end ? 0 : end - call.window, end};
}

/// A scaled score as the softmax takes it.
WEFT_BOTH float capped(const AttentionCall& call, float score) {
  return call.cap == 0 ? score : call.cap * tanhf(score / call.cap);
}
/// The sum of exp(score - largest) over all positions, with the share of the head's sink.
WEFT_BOTH float total_with_sink(const AttentionCall& call, int32_t head, float largest,
                                float total) {
  return call.sinks == nullptr ? total : total + expf(call.sinks[head] - largest);
}

}  // namespace weft::cuda
