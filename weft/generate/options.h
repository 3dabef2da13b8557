#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/grammar/grammar.h"

// What users choose of generation: no tensors, so that a program can read flags without libtorch.
namespace weft::generate {

/// What is added to a token's logit.
struct TokenBias {
  int64_t token = 0;
  double bias = 0;
};

/// How the next token is drawn. First a grammar rules tokens
/// out, then logits are changed: repeat_penalty, then presence_penalty and
/// frequency_penalty, then logit_bias. Then filters apply in this order: top_k, top_p, min_p, and
/// last the temperature.
struct SamplerOptions {
  /// 0 takes the likeliest token.
  double temperature = 0.0;
  /// Keep the k likeliest; 0 keeps all.
  int64_t top_k = 0;
  /// Keep the fewest likeliest tokens whose probabilities sum to p; 1 keeps all.
  double top_p = 1.0;
  /// Keep tokens at least p times as likely as the likeliest; 0 keeps all.
  double min_p = 0.0;
  uint64_t seed = 0;
  /// Divides positive logits, and multiplies negative ones, of tokens among the last repeat_last_n
  /// of prompt and answer (-1: all of them). 1 changes nothing.
  double repeat_penalty = 1.0;
  int64_t repeat_last_n = -1;
  /// Taken from the logits of tokens that the answer has, once and as often as it has them; -2 to
  /// 2.
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  /// -100 to 100 each; a token may stand here once.
  std::vector<TokenBias> logit_bias = {};
  /// Rules out, before all else, what it does not allow; null: nothing. It is compiled for the
  /// model's tokenizer.
  std::shared_ptr<const grammar::Grammar> grammar = nullptr;
};

/// Throws ConfigError naming the option that is out of range.
void check_sampler(const SamplerOptions& options);
/// Throws ConfigError for a bias of a token that a vocabulary of so many does not have.
void check_biases(const SamplerOptions& options, int64_t vocab_size);

/// As many new tokens as the context has room for.
inline constexpr int64_t kUnlimited = INT32_MAX;

/// With one token before them, as many as FusedAttention reads one by one.
inline constexpr int64_t kMostGuesses = 15;

/// The most tokens whose probabilities are told beside the one that was drawn.
inline constexpr int64_t kMostLogprobs = 20;

/// What to generate.
struct GenerateOptions {
  /// The most new tokens; 0 only reads the prompt, kUnlimited fills the context.
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  /// The most tokens that are guessed from the text so far (PromptLookup) and read in one pass with
  /// the last one; the right ones stay. 0 to kMostGuesses. The answer is the same: with panels
  /// (models::FusedDecoder) bit for bit; modules may add in another order when they read several
  /// tokens, as they may for a prompt.
  int64_t speculate = 0;
  /// How many of the likeliest tokens to tell with each one, and its own probability; -1: neither.
  int64_t num_logprobs = -1;
};

/// What to generate, and where its text ends.
struct TextOptions {
  GenerateOptions generate;
  /// Continue past the tokens that end a text.
  bool ignores_end = false;
  /// Special tokens that have a text all the same: their spelling.
  std::vector<int64_t> spelled = {};
  /// What the answer must be. It is compiled where the sampler has no grammar yet; it does not go
  /// together with ignores_end.
  std::optional<grammar::Source> grammar = {};
  /// Texts before which the answer ends, wherever they occur in it; none may be empty. Tokens
  /// that a stop text begins with stay in GenerateResult::tokens.
  std::vector<std::string> stops;
};

/// How a text is cut into windows, and which of their tokens are scored.
struct PerplexityOptions {
  /// Tokens per window, which the model sees at once.
  int64_t context = 512;
  /// 0: windows stand side by side, the second half of each is scored from what stands before it in
  /// the window, and what fills no window is left out: llama.cpp's way. Otherwise each window
  /// begins this many tokens after the one before and scores what that did not, to the end of the
  /// text: the way of transformers' documentation.
  int64_t stride = 0;
  /// With stride 0: the token that takes the place of each window's first, for a model whose texts
  /// begin with one; -1: none.
  int64_t first_token = -1;
  /// Reads windows by way of a cache, as generation reads a prompt: what it rounds costs is in the
  /// result. Without, a window is read as in training.
  bool uses_cache = false;
};

}  // namespace weft::generate
