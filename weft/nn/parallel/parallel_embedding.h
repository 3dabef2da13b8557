#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/parallelism.h"
#include "weft/nn/layers/cloned.h"
#include "weft/nn/parallel/init.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// The options of torch::nn::Embedding, with its meanings on the whole table, and how it begins.
struct ParallelEmbeddingOptions {
  /// The row that gets no gradient and begins with zeros; counted from the end if negative.
  std::optional<int64_t> padding_idx = std::nullopt;
  /// Rows that are looked up and whose `norm_type`-norm is larger are first scaled to it, in place.
  std::optional<double> max_norm = std::nullopt;
  double norm_type = 2;
  /// Divides a row's gradient by how often it was looked up.
  bool scale_grad_by_freq = false;
  /// Gives the weight a sparse COO gradient.
  bool sparse = false;
  Init init = Init::xavier_normal();
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// An embedding whose columns (embedding_dim) are cut over the ranks: each looks up its part of
/// every row and one all-gather joins them; the gradient of this rank's part is cut out, so
/// backward communicates nothing. Half the bytes of VocabParallelEmbedding's all-reduce, but a head
/// cut by vocabulary can't share its weight.
class ParallelEmbeddingImpl : public Cloned<ParallelEmbeddingImpl, torch::nn::Module> {
 public:
  /// A table [num_embeddings, embedding_dim] that begins as options.init says, the same on any
  /// number of ranks. Throws ConfigError if a rank would hold no column or options exclude each
  /// other. Collective, except on the meta device.
  ParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, dist::Group group,
                        ParallelEmbeddingOptions options = {});
  /// Over dist::model_group().
  ParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim,
                        ParallelEmbeddingOptions options = {});
  /// Keeps `shard` [num_embeddings, this rank's columns]; init, dtype and device are not used.
  ParallelEmbeddingImpl(at::Tensor shard, int64_t embedding_dim, dist::Group group,
                        ParallelEmbeddingOptions options, bool requires_grad);

  /// ids: int64 or int32, any shape, the same on all ranks. Returns [ids…, embedding_dim], whole
  /// and the same on all ranks. Throws ShapeError for an id outside of the table. Collective.
  at::Tensor forward(const at::Tensor& ids);
  /// The whole table on every rank, without gradient. Collective.
  at::Tensor master_weight() const;
  /// Draws a new whole table and keeps this rank's columns. Collective.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);
  /// As ParallelLinear's.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  int64_t num_embeddings() const { return weight.size(0); }
  int64_t embedding_dim() const { return embedding_dim_; }
  const dist::Group& group() const { return group_; }
  /// The columns of all ranks.
  shard::Layout layout() const { return shard::contiguous_layout(1, sizes_); }
  const ParallelEmbeddingOptions& options() const { return options_; }

  /// [num_embeddings, this rank's columns].
  at::Tensor weight;

 private:
  void check_options();
  at::Tensor whole_norms(const at::Tensor& rows) const;
  void renormalize(const at::Tensor& ids);

  int64_t embedding_dim_;
  dist::Group group_;
  ParallelEmbeddingOptions options_;
  std::vector<int64_t> sizes_;
};
TORCH_MODULE(ParallelEmbedding);

/// The columns of `whole` [num_embeddings, embedding_dim] that this rank holds, copied, as a layer;
/// torch's Embedding::from_pretrained. A frozen weight gets no gradient. The whole can be released.
/// `whole` is the same on all ranks. Throws as the constructors do.
ParallelEmbedding parallel_embedding_from_pretrained(const at::Tensor& whole, dist::Group group,
                                                     ParallelEmbeddingOptions options = {},
                                                     bool freeze = true);

}  // namespace weft::nn
