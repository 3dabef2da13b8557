#include "weft/models/convert/gguf_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>

namespace weft::models {
namespace {

// Rows of whole heads from halves to pairs, for GGUF's own rope.
at::Tensor with_pairs(const at::Tensor& rows, int64_t head_dim) {
  return rows.reshape({rows.size(0) / head_dim, 2, head_dim / 2, -1})
      .transpose(1, 2)
      .reshape(rows.sizes());
}

at::Tensor with_columns(const at::Tensor& rows, const std::vector<shard::Range>& columns) {
  if (columns.empty()) return rows;
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : columns) {
    parts.push_back(rows.narrow(1, range.start, range.length));
  }
  return at::cat(parts, 1);
}

}  // namespace

void GgufRows::visit(const GgufSource& source, at::ScalarType type, const Visit& visit) const {
  const PlannedWeight& weight = *source.weight;
  const shard::Range all = source.taken_rows();
  const int64_t head_dim = source.paired_heads > 0 ? all.length / source.paired_heads : 1;
  const auto put = [&](const at::Tensor& rows) {
    visit(source.paired_heads > 0 ? with_pairs(rows, head_dim) : rows);
  };
  if (weight.rule.is_vector()) {
    const at::Tensor vector = reader_.vector(weight, type).narrow(0, all.start, all.length);
    if (source.is_decay) return put(at::exp(vector).neg());
    return put(source.offset == 0 ? vector : vector + source.offset);
  }
  if (source.is_transposed) {
    return visit(reader_.plain_rows(weight, all, at::kFloat).t().contiguous());
  }
  for (const shard::Range& rows : RowReader::runs(weight, all, head_dim)) {
    put(with_columns(reader_.plain_rows(weight, rows, at::kFloat), source.columns));
  }
}

}  // namespace weft::models
