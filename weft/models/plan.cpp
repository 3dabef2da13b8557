#include "weft/models/plan.h"

#include <algorithm>
#include <set>

#include "weft/core/error.h"

namespace weft::models {

const WeightPlan& LoadPlan::find(const std::string& name) const {
  const auto it = std::find_if(weights.begin(), weights.end(),
                               [&](const WeightPlan& weight) { return weight.name == name; });
  core::check<core::InternalError>(it != weights.end(), "models: no weight '", name,
                                   "' in the plan");
  return *it;
}

uint64_t planned_bytes(const io::TensorFile& file, const WeightPlan& weight) {
  if (!weight.is_vector()) return io::slice_bytes(file, weight.matrix, weight.slice);
  const io::TensorMeta& meta = file.require(weight.matrix.name);
  return static_cast<uint64_t>(weight.slice.columns.length * io::info(meta.dtype).block_bytes);
}

std::string stored_as(const io::TensorFile& file, const WeightPlan& weight) {
  if (!weight.is_vector()) return io::matrix_format(file, weight.matrix).text;
  return std::string(io::info(file.require(weight.matrix.name).dtype).name);
}

void check_all_used(const io::TensorFile& file, const LoadPlan& plan) {
  std::set<std::string> unused;
  for (const io::TensorMeta& meta : file.tensors()) unused.insert(meta.name);
  for (const WeightPlan& weight : plan.weights) {
    if (weight.is_vector()) {
      unused.erase(weight.matrix.name);
    } else {
      for (const std::string& part : io::matrix_parts(file, weight.matrix)) unused.erase(part);
    }
  }
  if (unused.empty()) return;
  const size_t shown = std::min<size_t>(unused.size(), 5);
  const std::vector<std::string> first(unused.begin(), std::next(unused.begin(), shown));
  core::fail<core::FormatError>(file.path(), ": ", unused.size(),
                                " tensors that the model does not use, e.g. ",
                                core::list_text(first), "; the file holds another model");
}

}  // namespace weft::models
