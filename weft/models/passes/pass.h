#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_block.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/models/passes/row_cut.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/layers/norm.h"
#include "weft/shard/layout.h"

namespace weft::models {

/// What the passes of a decoder run: handles to the decoder's own modules.
struct PassParts {
  ModelConfig config;
  std::vector<DecoderBlock> blocks;
  /// Empty where the last layers are on another stage.
  nn::RMSNorm last_norm{nullptr};
  /// The first and the last layer are here.
  bool is_whole = true;
  /// This rank's, by layer.
  std::vector<nn::KvHeads> kv_heads = {};
  dist::Group group = {};
  /// As WeightSource::is_exact; the modules have the sums that it asks for.
  bool is_exact = false;
};

/// A cache for `capacity` positions of `batch` sequences; no type: the one that the pass reads
/// fastest.
struct CacheRequest {
  int64_t batch = 1;
  int64_t capacity = 0;
  std::optional<at::ScalarType> dtype = {};
};

/// The residual stream of a pass between two of its blocks.
struct PassRows {
  /// Rows of all sequences that there is memory for, and those of them that are tokens, [B, T, D].
  at::Tensor all_RD, x_BTD;
  /// The rows that are kept up to date on this rank.
  RowCut own = {};
  /// As of PassContext, in the type that the pass reads.
  at::Tensor layer_inputs_BTLP = {};
};

/// A way to run a decoder's blocks and its last norm. Which options of the configuration it knows,
/// the pass table says; a pass is never made for an option that it does not know.
class Pass {
 public:
  Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  virtual ~Pass() = default;

  /// False if it can't run the blocks' weights as they were held when it was made.
  virtual bool is_complete() const = 0;
  /// Whether the modules still hold the linears that they held then, as far as it looked.
  virtual bool is_current() const = 0;
  /// Whether run takes the cache, or null, in the present grad mode.
  virtual bool takes(const nn::KvCache* cache) const = 0;
  /// Whether run also takes one token each of sequences with caches of their own that it takes
  /// (PassContext::caches), and up to most_as_alone tokens of each.
  virtual bool takes_each() const { return false; }
  /// A pass of at most so many tokens of one sequence gives each the bits that a pass of its own
  /// gives it.
  virtual int64_t most_as_alone() const { return 1; }
  /// A cache that run takes, with this rank's kv heads. Throws ConfigError for a type that it does
  /// not read or without positions, IoError where memory is full.
  virtual nn::KvCache make_cache(const CacheRequest& request) const = 0;
  /// x_BTD: the tokens' embeddings, floating. Writes keys and values behind the positions of
  /// context.cache, if there is one, and leaves it to the caller to advance it. Returns hidden
  /// states of the same shape, after the last norm where it is here. Throws ConfigError if the
  /// cache has no room or is of another batch. Collective over the parts' group.
  virtual at::Tensor run(const at::Tensor& x_BTD, const PassContext& context) = 0;
};

/// A pass that does what run does in several calls as well, between which it may run for other
/// caches.
class PassByBlocks : public Pass {
 public:
  /// Takes the tokens' embeddings, as run.
  virtual PassRows begin(const at::Tensor& x_BTD, const PassContext& context) = 0;
  /// Runs those blocks, with the context of begin; each once, in their order. Collective.
  virtual void run_blocks(PassRows& rows, const PassContext& context,
                          const shard::Range& blocks) = 0;
  /// What run returns. Collective.
  virtual at::Tensor finish(PassRows& rows) = 0;
};

}  // namespace weft::models
