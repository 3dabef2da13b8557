#include "weft/generate/engine.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/profile.h"
#include "weft/generate/likeliest_tokens.h"
#include "weft/generate/prompt_lookup.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;
using Clock = std::chrono::steady_clock;

// Long prompts go through the model in pieces, so that activations stay small.
constexpr size_t kPrefillTokens = 512;

int64_t checked_context(const models::CausalLM& model, int64_t context) {
  const int64_t limit = model.config().max_positions;
  check<ConfigError>(context >= 1 && context <= limit, "--ctx-size: ", context, ", expected 1 to ",
                     limit, " for this model");
  return context;
}

// With dynamic rope a token's angles depend on the tokens that are read with it, and the state of a
// recurrent layer can't forget a wrong guess.
int64_t most_guesses(const GenerateOptions& options, const models::ModelConfig& config) {
  check<ConfigError>(options.speculate >= 0 && options.speculate <= kMostGuesses,
                     "--speculate: ", options.speculate, ", expected 0 to ", kMostGuesses);
  const bool is_dynamic = config.rope_scaling.type == nn::RopeType::kDynamic;
  return is_dynamic || !config.recurrent.layers.empty() ? 0 : options.speculate;
}

FinishReason reason_of(Verdict verdict) {
  return verdict == Verdict::kStop ? FinishReason::kStop : FinishReason::kCancelled;
}

}  // namespace

const char* to_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  core::fail<core::InternalError>("generate: unknown finish reason");
}

Engine::Engine(std::shared_ptr<models::CausalLM> model, int64_t context)
    : model_(std::move(model)), cache_(model_->make_cache(1, checked_context(*model_, context))) {}

void Engine::reset() {
  cache_.truncate(0);
  read_.clear();
}

void Engine::check_prompt(const std::vector<int64_t>& prompt) const {
  check<ConfigError>(!prompt.empty(), "generate: the prompt is empty; give at least one token");
  const int64_t vocab_size = model_->config().vocab_size;
  for (const int64_t token : prompt) {
    check<ConfigError>(token >= 0 && token < vocab_size, "generate: token ", token,
                       ", expected 0 to ", vocab_size - 1);
  }
  check<ConfigError>(static_cast<int64_t>(prompt.size()) <= cache_.capacity(),
                     "generate: ", prompt.size(), " tokens of prompt, the context holds ",
                     cache_.capacity(), "; use a shorter prompt or a larger --ctx-size");
}

// Keeps what the prompt shares with the sequence so far, but reads its last token anew: its logits
// are wanted.
size_t Engine::reuse_prefix(const std::vector<int64_t>& prompt) {
  const auto differ = std::mismatch(read_.begin(), read_.end(), prompt.begin(), prompt.end());
  const size_t shared = std::min<size_t>(differ.second - prompt.begin(), prompt.size() - 1);
  const int64_t kept = cache_.most_kept(static_cast<int64_t>(shared));
  cache_.truncate(kept);
  read_.resize(static_cast<size_t>(kept));
  return static_cast<size_t>(kept);
}

// Reads the tokens and scores what may follow each of the last `num_rows`, which fit into one
// piece.
Engine::Scores Engine::read(std::span<const int64_t> tokens, int64_t num_rows, bool needs_logits) {
  at::Tensor last_TD;
  for (size_t start = 0; start < tokens.size(); start += kPrefillTokens) {
    const auto piece = tokens.subspan(start, std::min(kPrefillTokens, tokens.size() - start));
    const at::Tensor ids_BT =
        at::tensor(at::ArrayRef<int64_t>(piece.data(), piece.size()), at::kLong).unsqueeze(0);
    const at::Tensor x_BTD = model_->forward(ids_BT, &cache_);
    const int64_t wanted = std::min(num_rows, ids_BT.size(1));
    last_TD = x_BTD.select(0, 0).narrow(0, ids_BT.size(1) - wanted, wanted);
  }
  read_.insert(read_.end(), tokens.begin(), tokens.end());
  const at::Tensor last_BTD = last_TD.unsqueeze(0);
  if (!needs_logits) return {{}, likeliest_tokens(*model_, last_BTD)};
  return {model_->logits(last_BTD).select(0, 0).to(at::kFloat).contiguous(), {}};
}

std::span<const float> Engine::Scores::logits(size_t row) const {
  const auto size = static_cast<size_t>(logits_TV.size(1));
  return {logits_TV.const_data_ptr<float>() + row * size, size};
}

int64_t Engine::Scores::draw(size_t row, Sampler& sampler) const {
  return logits_TV.defined() ? sampler.sample(logits(row)) : likeliest[row];
}

// Row i follows guess i - 1: it is drawn from only if all guesses before it were.
Engine::Drawn Engine::draw(const Scores& scores, std::span<const int64_t> guesses,
                           Drawing& drawing) {
  Drawn drawn;
  for (size_t row = 0; row <= guesses.size(); ++row) {
    const int64_t token = scores.draw(row, drawing.sampler);
    drawn.verdict = drawing.sink(token);
    if (drawn.verdict != Verdict::kContinue) break;
    drawn.tokens.push_back(token);
    if (drawing.num_logprobs >= 0) {
      drawn.logprobs.push_back(logprobs_of(scores.logits(row), token, drawing.num_logprobs));
    }
    if (row < guesses.size() && token != guesses[row]) break;
  }
  return drawn;
}

// By rank 0.
Engine::Drawn Engine::draw_for_all(const Scores& scores, std::span<const int64_t> guesses,
                                   Drawing& drawing) const {
  const core::Profiled profiled("draw, broadcast");
  Drawn drawn;
  if (model_->group().rank() == 0) drawn = draw(scores, guesses, drawing);
  Drawn shared = share(drawn, guesses.size() + 1);
  shared.logprobs = std::move(drawn.logprobs);
  return shared;
}

// Gives what rank 0 has drawn to all ranks.
Engine::Drawn Engine::share(const Drawn& drawn, size_t most) const {
  std::vector<int64_t> fields = {static_cast<int64_t>(drawn.verdict),
                                 static_cast<int64_t>(drawn.tokens.size())};
  fields.insert(fields.end(), drawn.tokens.begin(), drawn.tokens.end());
  fields.resize(2 + most);
  at::Tensor shared = at::tensor(fields, at::kLong);
  model_->group().broadcast(shared, 0);
  const auto* data = shared.const_data_ptr<int64_t>();
  return {{data + 2, data + 2 + data[1]}, static_cast<Verdict>(data[0]), {}};
}

// Adds the tokens to the result, forgets wrong guesses and returns how many were right: all tokens
// but the last, or all of them if the token after the last one ended the text.
size_t Engine::keep(const Drawn& drawn, size_t num_guesses, GenerateResult& result) {
  const size_t right = drawn.tokens.size() - (drawn.verdict == Verdict::kContinue ? 1 : 0);
  cache_.truncate(cache_.length() - static_cast<int64_t>(num_guesses - right));
  read_.resize(read_.size() - (num_guesses - right));
  result.num_guessed_right += static_cast<int64_t>(right);
  result.tokens.insert(result.tokens.end(), drawn.tokens.begin(), drawn.tokens.end());
  result.logprobs.insert(result.logprobs.end(), drawn.logprobs.begin(), drawn.logprobs.end());
  return right;
}

// Once.
void Engine::say_if_unguessed(const GenerateOptions& options) {
  const bool has_states = !model_->config().recurrent.layers.empty();
  if (options.speculate == 0 || !has_states || has_said_ || model_->group().rank() != 0) return;
  has_said_ = true;
  core::log(core::LogLevel::kWarn,
            "generate: --speculate: no tokens are guessed, as the states of recurrent layers can't "
            "forget wrong ones");
}

// How many guesses may follow the token that is read next: reading it and the guesses yields one
// token more than there are guesses.
int64_t Engine::room_for_guesses(const GenerateOptions& options,
                                 const GenerateResult& result) const {
  const auto written = static_cast<int64_t>(result.tokens.size());
  return std::min(options.max_tokens - written, cache_.capacity() - cache_.length()) - 1;
}

GenerateResult Engine::generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                                const TokenSink& sink) {
  const c10::InferenceMode inference;
  check_prompt(prompt);
  check_biases(options.sampler, model_->config().vocab_size);
  PromptLookup lookup(prompt, most_guesses(options, model_->config()));
  say_if_unguessed(options);
  Drawing drawing{Sampler(options.sampler), sink, options.num_logprobs};
  drawing.sampler.begin(prompt);
  GenerateResult result;
  result.num_prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  Scores scores = read(std::span(prompt).subspan(reuse_prefix(prompt)), 1, drawing.needs_logits());
  result.prefill_seconds = core::seconds_since(start);
  start = Clock::now();
  std::vector<int64_t> guesses;
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    const Drawn drawn = draw_for_all(scores, guesses, drawing);
    const size_t right = keep(drawn, guesses.size(), result);
    lookup.learn(static_cast<int64_t>(guesses.size()), static_cast<int64_t>(right));
    for (const int64_t token : drawn.tokens) lookup.add(token);
    if (drawn.verdict != Verdict::kContinue) {
      result.finish_reason = reason_of(drawn.verdict);
      break;
    }
    const bool is_full = cache_.length() >= cache_.capacity();
    if (is_full || static_cast<int64_t>(result.tokens.size()) == options.max_tokens) break;
    guesses = lookup.guess(room_for_guesses(options, result));
    result.num_guessed += static_cast<int64_t>(guesses.size());
    std::vector<int64_t> next = {result.tokens.back()};
    next.insert(next.end(), guesses.begin(), guesses.end());
    scores = read(next, static_cast<int64_t>(next.size()), drawing.needs_logits());
  }
  result.decode_seconds = core::seconds_since(start);
  return result;
}

}  // namespace weft::generate
