#include "weft/generate/batch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/generate/likeliest_tokens.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;
using Clock = std::chrono::steady_clock;

constexpr const char* kGenerateBatch = "generate.generate_batch";
// Rows of a pass, so that activations stay small.
constexpr int64_t kPassRows = 512;

void check_prompts(const models::ModelConfig& config, const at::Tensor& prompts_BT,
                   int64_t new_tokens) {
  check<ConfigError>(
      prompts_BT.dim() == 2 && prompts_BT.scalar_type() == at::kLong && prompts_BT.numel() > 0,
      kGenerateBatch, ": prompts, expected int64 [sequences, tokens], at least one of each");
  check<ConfigError>(
      prompts_BT.min().item<int64_t>() >= 0 && prompts_BT.max().item<int64_t>() < config.vocab_size,
      kGenerateBatch, ": tokens from ", prompts_BT.min().item<int64_t>(), " to ",
      prompts_BT.max().item<int64_t>(), ", expected 0 to ", config.vocab_size - 1);
  const int64_t positions = prompts_BT.size(1) + new_tokens;
  check<ConfigError>(new_tokens >= 0 && positions <= config.max_positions, kGenerateBatch, ": ",
                     prompts_BT.size(1), " tokens and ", new_tokens, " new ones, expected at most ",
                     config.max_positions, " for this model");
}

// The likeliest next token of each sequence [B, 1], drawn on rank 0, or -1 in all places to end.
at::Tensor next_tokens(models::CausalLM& model, const at::Tensor& x_BTD, const GoesOn& goes_on) {
  const at::Tensor last_B1D = x_BTD.narrow(1, x_BTD.size(1) - 1, 1);
  const std::vector<int64_t> tokens = likeliest_tokens(model, last_B1D);
  at::Tensor tokens_B1 = at::tensor(tokens, at::kLong).unsqueeze(1);
  if (model.group().rank() == 0 && !goes_on()) tokens_B1.fill_(-1);
  model.group().broadcast(tokens_B1, 0);
  return tokens_B1;
}

at::Tensor read(models::CausalLM& model, const at::Tensor& prompts_BT, nn::KvCache& cache) {
  const int64_t piece = std::max<int64_t>(1, kPassRows / prompts_BT.size(0));
  at::Tensor x_BTD;
  for (int64_t start = 0; start < prompts_BT.size(1); start += piece) {
    x_BTD = model.forward(prompts_BT.narrow(1, start, std::min(piece, prompts_BT.size(1) - start)),
                          &cache);
  }
  return x_BTD;
}

}  // namespace

BatchResult generate_batch(models::CausalLM& model, const at::Tensor& prompts_BT,
                           int64_t new_tokens, const GoesOn& goes_on) {
  const c10::InferenceMode inference;
  check_prompts(model.config(), prompts_BT, new_tokens);
  nn::KvCache cache = model.make_cache(prompts_BT.size(0), prompts_BT.size(1) + new_tokens);
  BatchResult result;
  auto start = Clock::now();
  at::Tensor x_BTD = read(model, prompts_BT, cache);
  result.prefill_seconds = core::seconds_since(start);
  start = Clock::now();
  std::vector<at::Tensor> steps = {at::empty({prompts_BT.size(0), 0}, at::kLong)};
  for (int64_t step = 0; step < new_tokens; ++step) {
    const at::Tensor tokens_B1 = next_tokens(model, x_BTD, goes_on);
    if (*tokens_B1.const_data_ptr<int64_t>() < 0) break;
    steps.push_back(tokens_B1);
    if (step + 1 < new_tokens) x_BTD = model.forward(tokens_B1, &cache);
  }
  result.tokens_BT = at::cat(steps, 1);
  result.decode_seconds = core::seconds_since(start);
  return result;
}

}  // namespace weft::generate
