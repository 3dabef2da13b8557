#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "weft/models/model.h"
#include "weft/models/quantize/importance.h"
#include "weft/nn/layers/observed_linear.h"

namespace weft::models {

/// What is read, in chunks that don't see one another.
struct CollectOptions {
  /// Tokens of a chunk.
  int64_t context = 512;
  /// 0: all.
  int64_t max_chunks = 0;
  /// Also products of every two inputs (InputStatistics), of matrices that are no experts'.
  bool takes_products = false;
  /// What replaces the first token of each chunk, as the tokenizer puts it before texts; below 0:
  /// nothing.
  int64_t first_token = -1;
  /// Of the tokens that are drawn for products.
  uint64_t seed = 1;
};

/// Sees the chunks that are done.
using CollectProgress = std::function<void(int64_t done, int64_t chunks)>;

/// Runs the model over `tokens`, the same on all ranks, and returns what the inputs of its matrices
/// were, under GGUF's names and in its order of columns: squares summed over the tokens, each
/// expert's over those that it got. The head's are those of the last norm, under the embedding's
/// name where it is tied to it. A token's products count the mean square of the loss's gradients by
/// what the matrix returned for it; the loss is that of next tokens which the model itself draws,
/// not the text's: such products are second derivatives of how far predictions move, of which the
/// text's own tokens give a worse estimate. Source: Kunstner et al. 2019, arXiv:1905.12558. A last
/// chunk that is not full is left out. The model is as before afterwards. Collective over its
/// group; the same on all ranks. Throws ConfigError for less than one chunk, for a token outside of
/// the vocabulary, and for products on more than one rank, FormatError for products of a model
/// whose logits are not finite.
Importance collect_importance(CausalLM& model, std::span<const int64_t> tokens,
                              const CollectOptions& options, const CollectProgress& progress);

}  // namespace weft::models
