#include "weft/nn/parallel/vocab_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/saved_cut.h"
#include "weft/nn/layers/token_ids.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;

constexpr const char* kEmbedding = "nn.VocabParallelEmbedding";

shard::Range rows_of(int64_t vocab_size, const dist::Group& group) {
  const shard::NamedSplit rows{core::join(kEmbedding, ": vocabulary"), vocab_size, 1};
  return rows.range(group.size(), group.rank());
}

at::Tensor initial_rows(int64_t vocab_size, int64_t embedding_dim, const shard::Range& rows,
                        const dist::Group& group, const VocabParallelEmbeddingOptions& options) {
  check<ShapeError>(embedding_dim >= 1, kEmbedding, ": embedding_dim ", embedding_dim,
                    ", expected at least 1");
  const uint64_t seed = options.device.is_meta() ? 0 : agreed_seed(group);
  at::Tensor table = make_shard(
      options.init, {{vocab_size, embedding_dim}, 0, {rows}, options.dtype, options.device}, seed);
  const int64_t padding = options.padding_idx.value_or(-1) - rows.start;
  if (padding >= 0 && padding < rows.length && !table.is_meta()) table.select(0, padding).zero_();
  return table;
}

// The options with a padding_idx that is counted from the front.
VocabParallelEmbeddingOptions checked_options(VocabParallelEmbeddingOptions options,
                                              int64_t vocab_size) {
  if (!options.padding_idx) return options;
  const int64_t index = *options.padding_idx;
  check<ConfigError>(index >= -vocab_size && index < vocab_size, kEmbedding, ": padding_idx ",
                     index, ", expected ", -vocab_size, " to ", vocab_size - 1);
  if (index < 0) options.padding_idx = index + vocab_size;
  return options;
}

std::shared_ptr<LinearLike> new_table(int64_t vocab_size, int64_t embedding_dim,
                                      const dist::Group& group,
                                      const VocabParallelEmbeddingOptions& options) {
  return std::make_shared<DenseLinearImpl>(
      initial_rows(vocab_size, embedding_dim, rows_of(vocab_size, group), group,
                   checked_options(options, vocab_size)),
      at::Tensor(), true);
}

std::span<Largest> list_of(std::vector<Largest>& lists, int64_t index, int64_t count) {
  return std::span(lists).subspan(static_cast<size_t>(index * count), static_cast<size_t>(count));
}

// Lists of `count` for all rows, in parallel: take(logits, to, row) makes one.
template <typename Take>
void for_each_row(const at::Tensor& logits_BTv, int64_t count, std::vector<Largest>& lists,
                  const Take& take) {
  const at::Tensor own = logits_BTv.detach().to(at::kFloat).contiguous();
  const int64_t v = own.size(-1), rows = own.numel() / v;
  lists.resize(static_cast<size_t>(rows * count));
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const logits = own.const_data_ptr<float>() + row * v;
      take(std::span(logits, static_cast<size_t>(v)), list_of(lists, row, count), row);
    }
  });
}

}  // namespace

VocabParallelImpl::VocabParallelImpl(std::shared_ptr<LinearLike> inner, int64_t vocab_size,
                                     dist::Group group, const char* where)
    : inner_(register_module("inner", std::move(inner))) {
  cut_.kind = ShardKind::kAllToSharded;
  cut_.layout =
      shard::make_layout({0, {}, 1}, vocab_size, group.size(), core::join(where, ": vocabulary"));
  cut_.group = std::move(group);
  check<ShapeError>(inner_->out_features() == vocab().length, where, ": weight of ",
                    inner_->out_features(), " rows, expected this rank's ", vocab().length, " of ",
                    vocab_size);
}

void VocabParallelImpl::set_inner(std::shared_ptr<LinearLike> inner) {
  check<ShapeError>(inner->in_features() == inner_->in_features() &&
                        inner->out_features() == inner_->out_features(),
                    "nn.VocabParallel.set_inner: [", inner->out_features(), ", ",
                    inner->in_features(), "], expected [", inner_->out_features(), ", ",
                    inner_->in_features(), "] as before");
  inner_ = replace_module("inner", std::move(inner));
}

void VocabParallelImpl::save(torch::serialize::OutputArchive& archive) const {
  torch::nn::Module::save(archive);
  save_cut(archive, {cut_.layout, cut_.group});
}

void VocabParallelImpl::load(torch::serialize::InputArchive& archive) {
  check_saved_cut(archive, SavedCut{cut_.layout, cut_.group}, "nn.VocabParallel");
  torch::nn::Module::load(archive);
}

void VocabParallelImpl::exchange_members(const MemberExchange& exchange) {
  inner_ = replace_module("inner", exchange.child_of(inner_));
}

at::Tensor VocabParallelImpl::master_weight() const {
  return gather_whole(inner_->dense_weight(), cut_);
}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(std::shared_ptr<LinearLike> inner,
                                                       int64_t vocab_size, dist::Group group,
                                                       VocabParallelEmbeddingOptions options)
    : Cloned(std::move(inner), vocab_size, std::move(group), kEmbedding),
      options_(checked_options(std::move(options), vocab_size)) {}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(int64_t vocab_size, int64_t embedding_dim,
                                                       dist::Group group,
                                                       VocabParallelEmbeddingOptions options)
    : VocabParallelEmbeddingImpl(new_table(vocab_size, embedding_dim, group, options), vocab_size,
                                 group, options) {}

// Straight from the table: for one token libtorch's operations would take longer than a layer.
at::Tensor VocabParallelEmbeddingImpl::panel_rows(const PanelLinearImpl& table,
                                                  const at::Tensor& ids_BT) const {
  const at::Tensor ids = ids_BT.to(at::kLong).contiguous();
  const int64_t* id = ids.const_data_ptr<int64_t>();
  const int64_t D = table.in_features();
  auto shape = ids.sizes().vec();
  shape.push_back(D);
  at::Tensor rows = at::zeros(shape, at::kFloat);
  auto* to = rows.mutable_data_ptr<float>();
  for (int64_t i = 0; i < ids.numel(); ++i, to += D) {
    const int64_t local = id[i] - vocab().start;
    if (local >= 0 && local < vocab().length) quant::read_panel_row(table.weight, local, to);
  }
  return rows;
}

at::Tensor VocabParallelEmbeddingImpl::own_rows(const at::Tensor& ids_BT) {
  check_token_ids(ids_BT, vocab_size(), kEmbedding);
  const auto* table = dynamic_cast<const PanelLinearImpl*>(inner_.get());
  if (table != nullptr) return panel_rows(*table, ids_BT);
  const at::Tensor local_BT = ids_BT - vocab().start;
  const at::Tensor elsewhere_BT = (local_BT < 0).logical_or(local_BT >= vocab().length);
  at::Tensor rows_BTD = inner_->rows(local_BT.clamp(0, vocab().length - 1));
  if (options_.padding_idx) {
    const at::Tensor is_padding_BT = ids_BT == *options_.padding_idx;
    rows_BTD = at::where(is_padding_BT.unsqueeze(-1), rows_BTD.detach(), rows_BTD);
  }
  if (group().size() == 1) return rows_BTD;
  return rows_BTD.masked_fill(elsewhere_BT.unsqueeze(-1), 0);
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids_BT) {
  return ops::mp_reduce(own_rows(ids_BT), group());
}

at::Tensor VocabParallelEmbeddingImpl::forward_rows(const at::Tensor& ids_BT,
                                                    const RowCounts& rows) {
  return ops::reduce_scatter_sequence(own_rows(ids_BT).flatten(0, -2), 0, group(), rows);
}

void VocabParallelEmbeddingImpl::reset_parameters() {
  const auto dense = std::dynamic_pointer_cast<DenseLinearImpl>(inner_);
  check<ConfigError>(dense != nullptr, kEmbedding,
                     ".reset_parameters: the table is not dense; reset it before it is quantized");
  VocabParallelEmbeddingOptions now = options_;
  now.dtype = dense->weight.scalar_type();
  now.device = dense->weight.device();
  const at::NoGradGuard no_grad;
  const at::Tensor rows = initial_rows(vocab_size(), dense->in_features(), vocab(), group(), now);
  if (!rows.is_meta()) dense->weight.copy_(rows);
}

void VocabParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "weft::nn::VocabParallelEmbedding(vocab_size=" << vocab_size()
         << ", embedding_dim=" << inner_->in_features() << ", ranks=" << group().size() << ")";
}

VocabParallelHeadImpl::VocabParallelHeadImpl(std::shared_ptr<LinearLike> inner, int64_t vocab_size,
                                             dist::Group group)
    : Cloned(std::move(inner), vocab_size, std::move(group), "nn.VocabParallelHead") {}

at::Tensor VocabParallelHeadImpl::forward(const at::Tensor& x_BTD) {
  return inner_->forward(ops::mp_copy(x_BTD, group()));
}

std::vector<Largest> VocabParallelHeadImpl::likeliest(const at::Tensor& logits_BTv, int64_t count) {
  std::vector<Largest> own;
  for_each_row(logits_BTv, count, own, [&](std::span<const float> logits, auto to, int64_t) {
    if (count == 1) {
      to.front() = largest(logits);
    } else {
      largest(logits, to);
    }
    for (Largest& each : to) each.place += vocab().start;
  });
  return join(std::move(own), count);
}

std::vector<Largest> VocabParallelHeadImpl::drawn(const at::Tensor& logits_BTv,
                                                  std::span<const GumbelDraw> draws) {
  const int64_t rows = logits_BTv.numel() / logits_BTv.size(-1);
  check<core::InternalError>(rows == std::ssize(draws), "nn.VocabParallelHead: ", draws.size(),
                             " draws, expected one for each of ", rows, " rows");
  std::vector<Largest> own;
  for_each_row(logits_BTv, 1, own, [&](std::span<const float> logits, auto to, int64_t row) {
    to.front() = largest_gumbel_sum(draws[static_cast<size_t>(row)], logits, vocab().start);
    to.front().place += vocab().start;
  });
  return join(std::move(own), 1);
}

// Of the ranks' own lists, each of `count`, the largest of all, on every rank.
std::vector<Largest> VocabParallelHeadImpl::join(std::vector<Largest> own, int64_t count) {
  const int64_t n = group().size(), rows = std::ssize(own) / count;
  if (n == 1) return own;
  std::vector<Largest> all(own.size() * static_cast<size_t>(n));
  const auto bytes = [](std::vector<Largest>& numbers) {
    const auto size = static_cast<int64_t>(numbers.size() * sizeof(Largest));
    return at::from_blob(numbers.data(), {size}, at::kByte);
  };
  at::Tensor whole = bytes(all);
  group().all_gather_into(whole, bytes(own));
  std::vector<Largest> of_ranks(static_cast<size_t>(n * count));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t r = 0; r < n; ++r) {
      std::ranges::copy(list_of(all, r * rows + row, count), list_of(of_ranks, r, count).begin());
    }
    if (count == 1) {
      own[static_cast<size_t>(row)] = largest(of_ranks);
    } else {
      largest(of_ranks, list_of(own, row, count));
    }
  }
  return own;
}

at::Tensor VocabParallelHeadImpl::gather(const at::Tensor& logits_BTv) {
  return ops::mp_gather(logits_BTv, -1, group(), cut_.layout.lengths());
}

}  // namespace weft::nn
