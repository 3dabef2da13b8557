#include "weft/generate/engine.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;
using Clock = std::chrono::steady_clock;

// Long prompts go through the model in pieces, so that activations stay small.
constexpr size_t kPrefillTokens = 512;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t checked_context(const models::CausalLM& model, int64_t context) {
  const int64_t limit = model.config().max_positions;
  check<ConfigError>(context >= 1 && context <= limit, "--ctx-size: ", context, ", expected 1 to ",
                     limit, " for this model");
  return context;
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
  cache_.truncate(static_cast<int64_t>(shared));
  read_.resize(shared);
  return shared;
}

at::Tensor Engine::next_logits(std::span<const int64_t> tokens) {
  at::Tensor last_1D;
  for (size_t start = 0; start < tokens.size(); start += kPrefillTokens) {
    const auto piece = tokens.subspan(start, std::min(kPrefillTokens, tokens.size() - start));
    const at::Tensor ids_BT =
        at::tensor(at::ArrayRef<int64_t>(piece.data(), piece.size()), at::kLong).unsqueeze(0);
    const at::Tensor x_BTD = model_->forward(ids_BT, &cache_);
    last_1D = x_BTD.select(0, 0).narrow(0, ids_BT.size(1) - 1, 1);
  }
  read_.insert(read_.end(), tokens.begin(), tokens.end());
  return model_->logits(last_1D.unsqueeze(0)).view({-1}).to(at::kFloat).contiguous();
}

Engine::Step Engine::next_token(const at::Tensor& logits_V, Sampler& sampler,
                                const TokenSink& sink) const {
  at::Tensor step = at::tensor(std::vector<int64_t>{0, 0}, at::kLong);
  auto* fields = step.mutable_data_ptr<int64_t>();
  if (model_->group().rank() == 0) {
    fields[0] =
        sampler.sample({logits_V.const_data_ptr<float>(), static_cast<size_t>(logits_V.numel())});
    fields[1] = static_cast<int64_t>(sink(fields[0]));
  }
  model_->group().broadcast(step, 0);
  return {fields[0], static_cast<Verdict>(fields[1])};
}

GenerateResult Engine::generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                                const TokenSink& sink) {
  const c10::InferenceMode inference;
  check_prompt(prompt);
  Sampler sampler(options.sampler);
  GenerateResult result;
  result.num_prompt_tokens = static_cast<int64_t>(prompt.size());
  auto start = Clock::now();
  at::Tensor logits_V = next_logits(std::span(prompt).subspan(reuse_prefix(prompt)));
  result.prefill_seconds = seconds_since(start);
  start = Clock::now();
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    const Step step = next_token(logits_V, sampler, sink);
    if (step.verdict != Verdict::kContinue) {
      result.finish_reason =
          step.verdict == Verdict::kStop ? FinishReason::kStop : FinishReason::kCancelled;
      break;
    }
    result.tokens.push_back(step.token);
    const bool is_full = cache_.length() >= cache_.capacity();
    if (is_full || static_cast<int64_t>(result.tokens.size()) == options.max_tokens) break;
    logits_V = next_logits({&step.token, 1});
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace weft::generate
