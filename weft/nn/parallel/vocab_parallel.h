#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/nn/logits/gumbel.h"
#include "weft/nn/logits/largest.h"
#include "weft/nn/parallel/init.h"
#include "weft/shard/split.h"

namespace weft::nn {

class PanelLinearImpl;

/// How a VocabParallelEmbedding begins, with the meanings of torch::nn::Embedding on the whole.
struct VocabParallelEmbeddingOptions {
  /// The token whose row gets no gradient and begins with zeros; counted from the end if negative.
  std::optional<int64_t> padding_idx = std::nullopt;
  Init init = Init::normal();
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// What embedding and head share: a matrix [V, D] cut by vocabulary rows, evenly, in any form.
class VocabParallelImpl : public torch::nn::Module, public LinearHolder {
 public:
  std::shared_ptr<LinearLike> inner() const override { return inner_; }
  void set_inner(std::shared_ptr<LinearLike> inner) override;
  const LinearCut* cut() const override { return &cut_; }
  /// This rank's rows of the vocabulary.
  const shard::Range& vocab() const { return cut_.layout.of(cut_.group.rank()).front(); }
  int64_t vocab_size() const { return cut_.layout.size; }
  const dist::Group& group() const { return cut_.group; }
  /// The whole [V, D] as numbers on every rank, without gradient. Collective.
  at::Tensor master_weight() const;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);
  /// As ParallelLinear's.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// `where` begins messages. Throws ShapeError unless `inner` has this rank's share of the rows.
  VocabParallelImpl(std::shared_ptr<LinearLike> inner, int64_t vocab_size, dist::Group group,
                    const char* where);

  std::shared_ptr<LinearLike> inner_;
  LinearCut cut_;
};

/// An embedding whose vocabulary rows are cut over the ranks: each looks up the tokens that it
/// holds, gives zeros for the others, and the sum over ranks is the embedding. Source: Shoeybi et
/// al. 2019, arXiv:1909.08053, section 3.
class VocabParallelEmbeddingImpl : public Cloned<VocabParallelEmbeddingImpl, VocabParallelImpl> {
 public:
  /// `inner` holds this rank's rows of the whole table [V, D]; `vocab_size` is V. Of `options` only
  /// padding_idx and init are used, init by reset_parameters.
  VocabParallelEmbeddingImpl(std::shared_ptr<LinearLike> inner, int64_t vocab_size,
                             dist::Group group, VocabParallelEmbeddingOptions options = {});
  /// A trainable dense table [V, D] that begins as options.init says, the same on any number of
  /// ranks, cut evenly. Throws ConfigError if a rank would hold no row. Collective, except on the
  /// meta device.
  VocabParallelEmbeddingImpl(int64_t vocab_size, int64_t embedding_dim, dist::Group group,
                             VocabParallelEmbeddingOptions options = {});

  /// ids_BT: int64 or int32, equal on all ranks. Returns x_BTD. Throws ShapeError, on all ranks,
  /// for an id outside of the vocabulary. Collective.
  at::Tensor forward(const at::Tensor& ids_BT);
  /// The same, of which each rank gets its rows of [B * T, D] alone: `rows` are all ranks' numbers.
  /// Collective: a reduce-scatter forward, a gather backward.
  at::Tensor forward_rows(const at::Tensor& ids_BT, const RowCounts& rows);
  /// Draws a new whole table and keeps this rank's rows. Throws ConfigError unless the inner layer
  /// is dense. Collective.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

 private:
  // Zeros for the tokens of other ranks.
  at::Tensor own_rows(const at::Tensor& ids_BT);
  at::Tensor panel_rows(const PanelLinearImpl& table, const at::Tensor& ids_BT) const;

  VocabParallelEmbeddingOptions options_;
};
TORCH_MODULE(VocabParallelEmbedding);

/// The output head cut by vocabulary rows; `inner` may be the embedding's own (tied).
class VocabParallelHeadImpl : public Cloned<VocabParallelHeadImpl, VocabParallelImpl> {
 public:
  /// `inner` holds this rank's rows of the whole head [V, D]; `vocab_size` is V.
  VocabParallelHeadImpl(std::shared_ptr<LinearLike> inner, int64_t vocab_size, dist::Group group);

  /// x_BTD: whole. Returns this rank's logits_BTv. Collective in backward.
  at::Tensor forward(const at::Tensor& x_BTD);
  /// Joins the ranks' logits_BTv to logits_BTV on every rank. Collective.
  at::Tensor gather(const at::Tensor& logits_BTv);
  /// Of each row of the ranks' logits_BTv the `count` largest, as nn::largest gives them, with
  /// their places in the vocabulary, on every rank: B * T lists of them. No more travels. Records
  /// no gradients. Collective.
  std::vector<Largest> likeliest(const at::Tensor& logits_BTv, int64_t count = 1);
  /// Of each row of the ranks' logits_BTv the token that its draw takes, and its sum, as
  /// nn::largest_gumbel_sum gives them for the whole vocabulary, on every rank: B * T of them, as
  /// many as `draws`, which are equal on all ranks. Records no gradients. Collective.
  std::vector<Largest> drawn(const at::Tensor& logits_BTv, std::span<const GumbelDraw> draws);

 private:
  std::vector<Largest> join(std::vector<Largest> own, int64_t count);
};
TORCH_MODULE(VocabParallelHead);

}  // namespace weft::nn
