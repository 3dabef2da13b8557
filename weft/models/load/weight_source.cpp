#include "weft/models/load/weight_source.h"

#include <ATen/ops/log.h>

#include "weft/core/error.h"

namespace weft::models {

shard::Layout WeightSource::layout(const std::string& base) const {
  const WeightRule& rule = plan_.require(base + ".weight").rule;
  shard::Layout layout = plan_.split(rule.split);
  layout.dim = rule.cut == Cut::kColumns ? 1 : 0;
  return layout;
}

at::Tensor from_stored(const at::Tensor& stored, const WeightRule& rule, const std::string& where) {
  if (!rule.is_stored_as_decay)
    return rule.stored_offset == 0 ? stored : stored - rule.stored_offset;
  core::check<core::FormatError>(
      (stored < 0).all().item<bool>(), where, ": tensor ", core::quote(rule.file_name),
      ": numbers of at least 0, expected negative ones, which say how fast a state is forgotten");
  return at::log(-stored);
}

}  // namespace weft::models
