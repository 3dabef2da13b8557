#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "weft/dist/group.h"
#include "weft/shard/split.h"

namespace weft::nn {

/// What the losses of the tokens become.
enum class Reduction { kNone, kSum, kMean };

/// The options of torch::nn::functional::cross_entropy, with its meanings on the whole, and more.
struct CrossEntropyOptions {
  /// Tokens with this target count for nothing.
  int64_t ignore_index = -100;
  /// Share of the target that is spread evenly over the vocabulary: torch's label_smoothing.
  double label_smoothing = 0;
  /// z: adds z * logsumexp(logits)^2 per token, which keeps logits from drifting. Source: Chowdhery
  /// et al. 2022 (PaLM), arXiv:2204.02311, section 5.
  double z_loss = 0;
  Reduction reduction = Reduction::kMean;
  /// For kMean: the ranks that hold other tokens of the same batch (data parallel). The divisor is
  /// the number of tokens of all of them, so that the *sum* of their losses is the batch's mean and
  /// the *sum* of their gradients its gradient, however unequally the tokens are spread.
  std::optional<dist::Group> count_group = std::nullopt;
  /// Backward writes the logits' gradient over the logits, which nothing else reads: no second
  /// array of their size. Backward then runs once (ConfigError otherwise).
  bool overwrites_logits = false;
};

/// Cross entropy of logits that are cut by vocabulary; no rank builds all logits. Equal to
/// torch::nn::functional::cross_entropy on the whole.
///
/// logits_BTv: [..., v], floating, this rank's `vocab` of `vocab_size` columns. targets_BT: [...],
/// int64, the same on all ranks of `group`. Returns float32 (float64 for float64 logits): [...] for
/// kNone, else a scalar, the same on all ranks of `group`. Arithmetic is in that type. Without any
/// token that counts, the mean is NaN, as torch's, and the sum 0.
///
/// Forward: two all-reduces over `group` of [...] and [2 or 3, ...] numbers (maximum; sum of
/// exponentials with the target's logit), and one of two numbers over count_group; backward: none.
/// The graph keeps the logits, in their dtype, and two numbers per token. Throws ShapeError for
/// shapes that don't fit and for a target outside of the vocabulary, on all ranks of both groups;
/// ConfigError for options out of range and for a gradient of the gradient. Collective.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits_BTv, const at::Tensor& targets_BT,
                                        shard::Range vocab, int64_t vocab_size,
                                        const dist::Group& group,
                                        const CrossEntropyOptions& options = {});

/// The same as a module; VocabParallelHead's logits go straight into it.
class VocabParallelCrossEntropyImpl : public torch::nn::Module {
 public:
  /// The vocabulary is cut evenly: shard::part. Throws ConfigError if a rank would hold nothing.
  VocabParallelCrossEntropyImpl(int64_t vocab_size, dist::Group group,
                                CrossEntropyOptions options = {});

  /// See vocab_parallel_cross_entropy. Collective.
  at::Tensor forward(const at::Tensor& logits_BTv, const at::Tensor& targets_BT);

 private:
  int64_t vocab_size_;
  dist::Group group_;
  CrossEntropyOptions options_;
  shard::Range vocab_;
};
TORCH_MODULE(VocabParallelCrossEntropy);

}  // namespace weft::nn
