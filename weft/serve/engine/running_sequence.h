#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/generate/prompt_lookup.h"
#include "weft/generate/sampler.h"
#include "weft/generate/text_stream.h"
#include "weft/serve/engine/prefix_cache.h"
#include "weft/serve/engine/sequence.h"
#include "weft/serve/engine/step_plan.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve {

/// A sequence from its request to its end: what it has read and drawn, and its text.
class RunningSequence {
 public:
  /// `tokenizer` must outlive this. At most `most_guesses` tokens are guessed at a time. Throws
  /// ConfigError as TextStream and Sampler.
  RunningSequence(uint64_t number, SequenceRequest request, SequenceSink sink,
                  const text::Tokenizer& tokenizer, int64_t most_guesses = 0);

  uint64_t number() const { return number_; }
  size_t client() const { return request_.client; }
  int64_t adapter() const { return request_.adapter; }
  const std::vector<int64_t>& prompt() const { return request_.prompt; }
  /// Positions that are kept, those of them that pages had, and tokens that were drawn.
  int64_t num_read() const { return num_read_; }
  int64_t num_reused() const { return num_reused_; }
  int64_t num_drawn() const { return std::ssize(drawn_); }
  /// Layers that have run for what it reads next, and positions that memory is held for: with those
  /// of a piece that has begun.
  int64_t num_layers_read() const { return num_layers_read_; }
  int64_t num_held() const;
  /// Tokens that are known but for the last one: the prompt, then those that were drawn.
  int64_t num_known() const;
  /// What is read next is a piece of the prompt, or tokens that were drawn before the sequence lost
  /// its slot, rather than the last token.
  bool reads_known() const { return num_read_ < num_known(); }

  /// Begins to read; true if for the first time. `keys`: of the prompt's whole pieces, or none.
  bool begin(std::vector<PieceKey> keys);
  /// Forgets what it has read, all of which it reads again: its text goes on as if nothing had
  /// been.
  void lose_slot();
  /// The keys of the pieces up to and with the one at `start`.
  std::span<const PieceKey> keys_to(int64_t start) const;
  /// The key of the piece that is read next, if a page can take its place: what follows the
  /// prompt's last token is wanted, so that one is read.
  const PieceKey* next_key() const;
  /// Goes on behind that piece, which a page has.
  void skip_piece();
  /// What it reads next: its last token, or the next piece of its prompt, or of what was drawn at
  /// most `most_at_once` tokens.
  StepPart next_part(int64_t slot, int64_t most_at_once = 1) const;
  /// Adds guesses of what follows to its last token, at most `limit`, none behind `context`
  /// positions, if it guesses at all; to be asked for each of its last tokens.
  void add_guesses(int64_t limit, int64_t context, StepPart& part);
  /// Takes what its part has given, if it is whole, and tells the sink: of guesses those that were
  /// right, and one token more. True if it has ended; `context`: the most positions.
  bool take(const StepPart& part, const PartScores& scores, int64_t context);
  /// Tells the sink that it is over.
  void end(SequenceEnd end, const std::string& error);

 private:
  Wanted wanted() const;
  void want(StepPart& part) const;
  int64_t draw(Wanted wanted, const PartScores& scores, SequenceEvent& event);
  bool take_tokens(const StepPart& part, const PartScores& scores, int64_t context);
  bool take_token(int64_t token, int64_t context, SequenceEvent& event);
  bool take_hidden(std::span<const float> hidden, SequenceEvent& event);
  void tell(SequenceEvent& event);

  uint64_t number_;
  SequenceRequest request_;
  SequenceSink sink_;
  generate::Sampler sampler_;
  generate::TextStream stream_;
  int64_t most_guesses_;
  /// Once it has begun, where tokens are guessed: a sequence that waits needs none.
  std::optional<generate::PromptLookup> lookup_;
  std::vector<PieceKey> keys_;
  /// With a pooling: hidden states so far.
  std::vector<double> sum_;
  int64_t num_read_ = 0;
  int64_t num_reused_ = 0;
  int64_t num_layers_read_ = 0;
  std::vector<int64_t> drawn_;
  bool has_begun_ = false;
  /// Positions that were read before it lost its slot: what pages have of these saves no more.
  int64_t most_read_ = 0;
};

}  // namespace weft::serve
