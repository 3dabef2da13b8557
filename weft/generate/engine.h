#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/generate/logprobs.h"
#include "weft/generate/options.h"
#include "weft/generate/sampler.h"
#include "weft/models/model.h"

namespace weft::generate {

/// Why an answer ended.
enum class FinishReason { kStop, kLength, kCancelled };
/// "stop", "length" or "cancelled".
const char* to_text(FinishReason reason);

/// The answer, and how long it took.
struct GenerateResult {
  /// The new tokens, without the one that ended the text.
  std::vector<int64_t> tokens;
  /// Their probabilities, on rank 0, where GenerateOptions::num_logprobs asks for them.
  std::vector<DrawnToken> logprobs;
  FinishReason finish_reason = FinishReason::kLength;
  int64_t num_prompt_tokens = 0;
  /// Tokens that were guessed, and those of them that became the answer's.
  int64_t num_guessed = 0;
  int64_t num_guessed_right = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// What the caller decides about a token that was drawn, on rank 0 only.
enum class Verdict { kContinue, kStop, kCancel };
/// Sees each new token as it comes. kStop drops the token and ends the text.
using TokenSink = std::function<Verdict(int64_t token)>;

/// Runs one sequence through a model that is cut over ranks: one prefill, then a token at a time,
/// or several where guesses were right (none are made for dynamic rope and recurrent layers).
/// Tokens are drawn on rank 0 and broadcast, so ranks never diverge. What a prompt shares with the
/// sequence before it is not read again, so a chat costs only its new words.
class Engine {
 public:
  /// `context` is the most positions kept; at most the model's. Collective.
  /// Throws ConfigError if it is out of range.
  Engine(std::shared_ptr<models::CausalLM> model, int64_t context);

  /// Reads `prompt`, then continues it by new tokens. Collective: every rank passes the same prompt
  /// and options; `sink` is called on rank 0 alone. The prompt may not be empty.
  /// Throws ConfigError for a token outside the vocabulary or a prompt that leaves no room.
  GenerateResult generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                          const TokenSink& sink);
  /// Forgets the sequence.
  void reset();

  int64_t length() const { return cache_.length(); }
  int64_t context() const { return cache_.capacity(); }
  const models::CausalLM& model() const { return *model_; }

 private:
  /// Tokens that were drawn and kept, and the verdict about the one after them.
  struct Drawn {
    std::vector<int64_t> tokens;
    Verdict verdict = Verdict::kContinue;
    /// On rank 0, where they are asked for.
    std::vector<DrawnToken> logprobs;
  };
  void check_prompt(const std::vector<int64_t>& prompt) const;
  size_t reuse_prefix(const std::vector<int64_t>& prompt);
  /// What tokens are drawn from, a row each: all logits, or the likeliest token, which needs none.
  struct Scores {
    at::Tensor logits_TV;
    std::vector<int64_t> likeliest;

    std::span<const float> logits(size_t row) const;
    int64_t draw(size_t row, Sampler& sampler) const;
  };
  /// What draws an answer's tokens, and who sees them.
  struct Drawing {
    Sampler sampler;
    const TokenSink& sink;
    int64_t num_logprobs = -1;

    bool needs_logits() const { return sampler.needs_logits() || num_logprobs >= 0; }
  };
  Scores read(std::span<const int64_t> tokens, int64_t num_rows, bool needs_logits);
  static Drawn draw(const Scores& scores, std::span<const int64_t> guesses, Drawing& drawing);
  Drawn draw_for_all(const Scores& scores, std::span<const int64_t> guesses,
                     Drawing& drawing) const;
  Drawn share(const Drawn& drawn, size_t most) const;
  size_t keep(const Drawn& drawn, size_t num_guesses, GenerateResult& result);
  void say_if_unguessed(const GenerateOptions& options);
  int64_t room_for_guesses(const GenerateOptions& options, const GenerateResult& result) const;

  std::shared_ptr<models::CausalLM> model_;
  nn::KvCache cache_;
  /// The tokens at the cache's positions.
  std::vector<int64_t> read_;
  bool has_said_ = false;
};

}  // namespace weft::generate
