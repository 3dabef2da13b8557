#include "weft/generate/scoring/divergence.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "weft/core/error.h"
#include "weft/generate/scoring/windows.h"

namespace weft::generate {
namespace {

// Positions whose logits exist at a time, in float64 and of both models.
constexpr int64_t kJoinedPositions = 32;

// What each scored position gave.
struct Scores {
  std::vector<double> divergences;
  int64_t num_same_best = 0;
  double loss = 0, reference_loss = 0;
};

at::Tensor log_probabilities(models::CausalLM& model, const at::Tensor& x_BTD) {
  return model.logits(x_BTD).squeeze(0).to(at::kDouble).log_softmax(-1);
}

void add_positions(const at::Tensor& log_p_TV, const at::Tensor& reference_TV,
                   const at::Tensor& targets_T, Scores& scores) {
  // A token that the reference gives no probability at all adds nothing.
  const at::Tensor p_TV = reference_TV.exp();
  const at::Tensor divergence_T =
      (p_TV * (reference_TV - log_p_TV)).masked_fill(p_TV == 0, 0).sum(-1).contiguous();
  const auto* values = divergence_T.const_data_ptr<double>();
  for (int64_t i = 0; i < divergence_T.numel(); ++i) {
    core::check<core::FormatError>(std::isfinite(values[i]), kPerplexity, ": a divergence of ",
                                   values[i], ", expected a number; the weights are damaged");
    // Rounding alone makes it negative.
    scores.divergences.push_back(std::max(0.0, values[i]));
  }
  scores.num_same_best += (log_p_TV.argmax(-1) == reference_TV.argmax(-1)).sum().item<int64_t>();
  const at::Tensor index_T1 = targets_T.unsqueeze(-1);
  scores.loss -= log_p_TV.gather(-1, index_T1).sum().item<double>();
  scores.reference_loss -= reference_TV.gather(-1, index_T1).sum().item<double>();
}

double value_at(std::vector<double>& values, double share) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto place = values.begin() + static_cast<int64_t>(std::ceil(share * last));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

DivergenceResult result_of(Scores& scores) {
  DivergenceResult result;
  std::vector<double>& values = scores.divergences;
  const auto n = static_cast<double>(values.size());
  result.num_scored = std::ssize(values);
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  result.mean = sum / n;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.standard_error = std::sqrt(squares / n / (n - 1));
  result.median = value_at(values, 0.5);
  result.p99_9 = value_at(values, 0.999);
  result.largest = *std::ranges::max_element(values);
  result.same_best = static_cast<double>(scores.num_same_best) / n;
  result.same_best_error = std::sqrt(result.same_best * (1 - result.same_best) / n);
  result.perplexity = std::exp(scores.loss / n);
  result.reference_perplexity = std::exp(scores.reference_loss / n);
  return result;
}

}  // namespace

DivergenceResult divergence(models::CausalLM& model, models::CausalLM& reference,
                            std::span<const int64_t> tokens, const PerplexityOptions& options,
                            const DivergenceProgress& progress) {
  const auto windows = score_windows(static_cast<int64_t>(tokens.size()), options);
  check_scored(model.config(), tokens, options);
  check_scored(reference.config(), tokens, options);
  const int64_t vocab_size = model.config().vocab_size;
  core::check<core::ConfigError>(reference.config().vocab_size == vocab_size, kPerplexity,
                                 ": the reference has a vocabulary of ",
                                 reference.config().vocab_size, ", expected the model's ",
                                 vocab_size);
  const c10::InferenceMode inference;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<nn::KvCache> cache;
  Scores scores;
  for (size_t done = 0; done < windows.size(); ++done) {
    const ScoredWindow& window = windows[done];
    const at::Tensor ids_BT = window_ids(tokens, window, options);
    begin_cache(model, window, options, cache);
    const at::Tensor x_BTD = model.forward(ids_BT, cache ? &*cache : nullptr);
    const at::Tensor reference_BTD = reference.forward(ids_BT, nullptr);
    for (int64_t from = window.first_scored; from < window.length; from += kJoinedPositions) {
      const int64_t to = std::min(from + kJoinedPositions, window.length);
      add_positions(log_probabilities(model, x_BTD.slice(1, from - 1, to - 1)),
                    log_probabilities(reference, reference_BTD.slice(1, from - 1, to - 1)),
                    ids_BT.squeeze(0).slice(0, from, to), scores);
    }
    progress(static_cast<int64_t>(done + 1), std::ssize(windows));
  }
  DivergenceResult result = result_of(scores);
  result.num_windows = std::ssize(windows);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace weft::generate
