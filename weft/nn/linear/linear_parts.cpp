#include "weft/nn/linear/linear_parts.h"

#include <ATen/ops/cat.h>

#include <vector>

#include "weft/core/error.h"
#include "weft/nn/layers/saved_cut.h"

namespace weft::nn {
namespace {

std::vector<at::Tensor> narrowed(const at::Tensor& x, int64_t dim,
                                 const std::vector<shard::Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : ranges) {
    parts.push_back(x.narrow(dim, range.start, range.length));
  }
  return parts;
}

}  // namespace

void LinearLike::load(torch::serialize::InputArchive& archive) {
  // Of "weft::nn::DenseLinearImpl" what users write: "nn.DenseLinear".
  std::string where = core::join("nn.", name().substr(name().rfind(':') + 1));
  if (where.ends_with("Impl")) where.resize(where.size() - 4);
  check_saved_cut(archive, std::nullopt, where.c_str());
  check_saved_tensors(archive, *this, where.c_str());
  AnyLinear::load(archive);
}

void check_input(const at::Tensor& x, int64_t in_features, const char* where) {
  core::check<core::ShapeError>(x.dim() >= 1 && x.size(-1) == in_features, where, ": input ",
                                core::list_text(x.sizes()), ", expected the last dim to be ",
                                in_features);
}

void check_bias(const at::Tensor& bias, int64_t out_features, const char* where) {
  core::check<core::ShapeError>(
      !bias.defined() || (bias.dim() == 1 && bias.size(0) == out_features), where, ": bias ",
      bias.defined() ? core::list_text(bias.sizes()) : "", ", expected [", out_features, "]");
}

const ShardableLinear& shardable(const LinearLike& linear, std::string_view where) {
  const auto* found = dynamic_cast<const ShardableLinear*>(&linear);
  core::check<core::ConfigError>(found != nullptr, where, ": a ", linear.name(),
                                 " can't be cut or joined, expected a weight in the file's order; "
                                 "do it before nn::put_in_panels or nn::on_cuda");
  return *found;
}

void check_shardable(const LinearLike& linear, const LinearCut& cut, const char* where) {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  core::check<core::InternalError>(cut.layout.dim == (by_rows ? 0 : 1), where, ": cut of dim ",
                                   cut.layout.dim, " for the other kind of layer");
  const int64_t size = by_rows ? linear.out_features() : linear.in_features();
  core::check<core::ShapeError>(size == cut.layout.size, where, ": ", size, " ",
                                by_rows ? "output" : "input", " features, expected ",
                                cut.layout.size, " as in the layout of the cut");
  core::check<core::ShapeError>(cut.layout.num_ranks() == cut.group.size(), where, ": layout for ",
                                cut.layout.num_ranks(), " ranks, expected the group's ",
                                cut.group.size());
}

at::Tensor own_part(const at::Tensor& whole, const LinearCut& cut) {
  const auto parts = narrowed(whole.detach(), cut.layout.dim, cut.layout.of(cut.group.rank()));
  return parts.size() == 1 ? parts[0].clone(at::MemoryFormat::Contiguous)
                           : at::cat(parts, cut.layout.dim);
}

at::Tensor gather_whole(const at::Tensor& part, const LinearCut& cut) {
  const int64_t dim = cut.layout.dim;
  const at::Tensor shards = cut.group.all_gather(part.detach(), dim, cut.layout.lengths());
  const auto order = cut.layout.gather_ranges();
  if (cut.group.size() == 1 && order.size() == 1) return shards.clone(at::MemoryFormat::Contiguous);
  return at::cat(narrowed(shards, dim, order), dim);
}

quant::QuantizedMatrix gather_shards(const quant::QuantizedMatrix& part, const LinearCut& cut) {
  const int64_t dim = cut.layout.dim;
  const int64_t own = dim == 0 ? quant::out_features(part) : quant::in_features(part);
  quant::QuantizedMatrix all = part;
  for (const auto& [name, tensor] : quant::parts_of(all)) {
    // A part has a row per row, but fewer columns.
    std::vector<int64_t> lengths = cut.layout.lengths();
    for (int64_t& length : lengths) length = length * tensor->size(dim) / own;
    *tensor = cut.group.all_gather(*tensor, dim, lengths).contiguous();
  }
  return all;
}

}  // namespace weft::nn
