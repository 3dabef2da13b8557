#include "weft/nn/parallel/parallel_embedding.h"

#include <ATen/ops/_unique.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/saved_cut.h"
#include "weft/nn/layers/token_ids.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;

constexpr const char* kParallelEmbedding = "nn.ParallelEmbedding";

shard::Range columns_of(int64_t embedding_dim, const dist::Group& group, int64_t rank) {
  const shard::NamedSplit columns{core::join(kParallelEmbedding, ": embedding_dim"), embedding_dim,
                                  1};
  return columns.range(group.size(), rank);
}

at::Tensor initial_shard(int64_t num_embeddings, int64_t embedding_dim, const dist::Group& group,
                         const ParallelEmbeddingOptions& options) {
  const shard::Range mine = columns_of(embedding_dim, group, group.rank());
  check<ShapeError>(num_embeddings >= 1, kParallelEmbedding, ": num_embeddings ", num_embeddings,
                    ", expected at least 1");
  const uint64_t seed = options.device.is_meta() ? 0 : agreed_seed(group);
  return make_shard(options.init,
                    {{num_embeddings, embedding_dim}, 1, {mine}, options.dtype, options.device},
                    seed);
}

}  // namespace

ParallelEmbeddingImpl::ParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim,
                                             dist::Group group, ParallelEmbeddingOptions options)
    : ParallelEmbeddingImpl(initial_shard(num_embeddings, embedding_dim, group, options),
                            embedding_dim, group, options, true) {
  const at::NoGradGuard no_grad;
  if (options_.padding_idx && !weight.is_meta()) weight.select(0, *options_.padding_idx).zero_();
}

ParallelEmbeddingImpl::ParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim,
                                             ParallelEmbeddingOptions options)
    : ParallelEmbeddingImpl(num_embeddings, embedding_dim, dist::model_group(),
                            std::move(options)) {}

ParallelEmbeddingImpl::ParallelEmbeddingImpl(at::Tensor shard, int64_t embedding_dim,
                                             dist::Group group, ParallelEmbeddingOptions options,
                                             bool requires_grad)
    : embedding_dim_(embedding_dim), group_(std::move(group)), options_(std::move(options)) {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    sizes_.push_back(columns_of(embedding_dim_, group_, rank).length);
  }
  const int64_t mine = sizes_[static_cast<size_t>(group_.rank())];
  check<ShapeError>(shard.dim() == 2 && shard.size(1) == mine, kParallelEmbedding, ": shard ",
                    core::list_text(shard.sizes()), ", expected [num_embeddings, ", mine, "]");
  weight = register_parameter("weight", std::move(shard), requires_grad);
  check_options();
}

void ParallelEmbeddingImpl::check_options() {
  const int64_t rows = num_embeddings();
  if (options_.padding_idx) {
    const int64_t index = *options_.padding_idx;
    check<ConfigError>(index >= -rows && index < rows, kParallelEmbedding, ": padding_idx ", index,
                       ", expected ", -rows, " to ", rows - 1);
    if (index < 0) options_.padding_idx = index + rows;
  }
  check<ConfigError>(!options_.max_norm || *options_.max_norm >= 0, kParallelEmbedding,
                     ": max_norm ", options_.max_norm.value_or(0), ", expected 0 or more");
  check<ConfigError>(!std::isnan(options_.norm_type), kParallelEmbedding,
                     ": norm_type nan, expected a number");
  check<ConfigError>(!(options_.sparse && options_.scale_grad_by_freq), kParallelEmbedding,
                     ": sparse gradients cannot be scaled by frequency; use one of the two");
}

// The p-norms of whole rows, of which each rank holds a part. Float64 sums need no scaling against
// overflow.
at::Tensor ParallelEmbeddingImpl::whole_norms(const at::Tensor& rows) const {
  const double p = options_.norm_type;
  const at::Tensor sizes = rows.to(at::kDouble).abs();
  at::Tensor norms;
  if (std::isinf(p)) {
    norms = p > 0 ? sizes.amax(1) : sizes.amin(1);
    group_.all_reduce(norms, p > 0 ? dist::ReduceOp::kMax : dist::ReduceOp::kMin);
    return norms;
  }
  norms = p == 0 ? (sizes != 0).sum(1).to(at::kDouble) : sizes.pow(p).sum(1);
  group_.all_reduce(norms);
  return p == 0 ? norms : norms.pow(1 / p);
}

void ParallelEmbeddingImpl::renormalize(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor used = std::get<0>(at::_unique(ids.reshape(-1)));
  const at::Tensor rows = weight.index_select(0, used);
  const at::Tensor norms = whole_norms(rows);
  // torch's embedding_renorm_ adds 1e-7 as well.
  const double limit = *options_.max_norm;
  const at::Tensor scales = at::where(norms > limit, limit / (norms + 1e-7), 1.0);
  weight.index_copy_(0, used.to(at::kLong), rows * scales.to(rows.scalar_type()).unsqueeze(1));
}

at::Tensor ParallelEmbeddingImpl::forward(const at::Tensor& ids) {
  check_token_ids(ids, num_embeddings(), kParallelEmbedding);
  if (options_.max_norm && ids.numel() > 0) renormalize(ids);
  const at::Tensor part = at::embedding(weight, ids, options_.padding_idx.value_or(-1),
                                        options_.scale_grad_by_freq, options_.sparse);
  return ops::mp_gather(part, -1, group_, sizes_);
}

void ParallelEmbeddingImpl::save(torch::serialize::OutputArchive& archive) const {
  torch::nn::Module::save(archive);
  save_cut(archive, {layout(), group_});
}

void ParallelEmbeddingImpl::load(torch::serialize::InputArchive& archive) {
  check_saved_cut(archive, SavedCut{layout(), group_}, kParallelEmbedding);
  check_saved_tensors(archive, *this, kParallelEmbedding);
  torch::nn::Module::load(archive);
}

void ParallelEmbeddingImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

at::Tensor ParallelEmbeddingImpl::master_weight() const {
  return group_.all_gather(weight.detach(), 1, sizes_);
}

void ParallelEmbeddingImpl::reset_parameters() {
  ParallelEmbeddingOptions now = options_;
  now.dtype = weight.scalar_type();
  now.device = weight.device();
  const at::NoGradGuard no_grad;
  const at::Tensor shard = initial_shard(num_embeddings(), embedding_dim_, group_, now);
  if (weight.is_meta()) return;
  weight.copy_(shard);
  if (options_.padding_idx) weight.select(0, *options_.padding_idx).zero_();
}

void ParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "weft::nn::ParallelEmbedding(num_embeddings=" << num_embeddings()
         << ", embedding_dim=" << embedding_dim_ << ", ranks=" << group_.size() << ")";
}

ParallelEmbedding parallel_embedding_from_pretrained(const at::Tensor& whole, dist::Group group,
                                                     ParallelEmbeddingOptions options,
                                                     bool freeze) {
  check<ShapeError>(whole.dim() == 2, kParallelEmbedding, ": whole weight ",
                    core::list_text(whole.sizes()), ", expected [num_embeddings, embedding_dim]");
  const int64_t width = whole.size(1);
  const shard::Range mine = columns_of(width, group, group.rank());
  at::Tensor shard =
      whole.detach().narrow(1, mine.start, mine.length).clone(at::MemoryFormat::Contiguous);
  return ParallelEmbedding(std::move(shard), width, std::move(group), std::move(options), !freeze);
}

}  // namespace weft::nn
