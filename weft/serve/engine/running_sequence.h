#pragma once

#include <cstdint>
#include <vector>

#include "weft/generate/sampler.h"
#include "weft/generate/text_stream.h"
#include "weft/serve/engine/sequence.h"
#include "weft/serve/engine/step_plan.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve {

/// A sequence from its request to its end: what it has read and drawn, and its text.
class RunningSequence {
 public:
  /// `tokenizer` must outlive this. Throws ConfigError as TextStream and Sampler.
  RunningSequence(uint64_t number, SequenceRequest request, SequenceSink sink,
                  const text::Tokenizer& tokenizer);

  uint64_t number() const { return number_; }
  const std::vector<int64_t>& prompt() const { return request_.prompt; }
  /// Positions that are kept.
  int64_t num_read() const { return num_read_; }
  bool reads_prompt() const { return num_read_ < std::ssize(request_.prompt); }

  /// Begins behind `num_reused` tokens of the prompt that its slot has.
  void begin(int64_t num_reused);
  /// What it reads next: its last token, or the next piece of its prompt.
  StepPart next_part(int64_t slot) const;
  /// Takes what its part has given and tells the sink. True if it has ended; `context`: the most
  /// positions.
  bool take(const StepPart& part, const PartScores& scores, int64_t context);
  /// Tells the sink that it is over.
  void end(SequenceEnd end, const std::string& error);

 private:
  Wanted wanted() const;
  int64_t draw(const PartScores& scores, SequenceEvent& event);
  bool take_token(int64_t token, int64_t context, SequenceEvent& event);
  void tell(SequenceEvent& event);

  uint64_t number_;
  SequenceRequest request_;
  SequenceSink sink_;
  generate::Sampler sampler_;
  generate::TextStream stream_;
  int64_t num_read_ = 0;
  int64_t num_reused_ = 0;
  int64_t num_drawn_ = 0;
  int64_t last_token_ = 0;
};

/// `token` and the `count` likeliest tokens with ln of their probabilities by `logits`, finite or
/// minus infinity.
DrawnToken logprobs_of(std::span<const float> logits, int64_t token, int64_t count);

}  // namespace weft::serve
