#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/io/load_tensor.h"
#include "weft/io/tensor_file.h"
#include "weft/shard/heads.h"
#include "weft/shard/layout.h"
#include "weft/shard/split.h"

namespace weft::models {

/// How a weight is cut: not at all, by rows (output features), or by columns (input features).
enum class Cut { kWhole, kRows, kColumns };

/// One weight of the model: where the file keeps it and what one rank holds of it.
struct WeightPlan {
  /// The model's own name, Hugging Face's spelling, e.g. "model.layers.0.mlp.up_proj.weight".
  std::string name;
  /// The tensor in the file and the whole's logical shape; out = 0 for a vector of `in` elements.
  io::MatrixRef matrix;
  Cut cut = Cut::kWhole;
  /// The named split: "heads", "kv", "ffn", "vocab"; empty if whole.
  std::string split;
  /// What this rank holds. Rows are in the model's order, which may differ from the file's.
  io::MatrixSlice slice;

  bool is_vector() const { return matrix.out == 0; }
};

/// What every rank holds, derived from headers alone: all ranks can plan for all.
struct LoadPlan {
  std::vector<WeightPlan> weights;
  /// By the named split: what each rank holds of the features, in the model's order.
  std::map<std::string, shard::Layout> layouts;
  shard::HeadShard heads;
  shard::Range ffn;
  shard::Range vocab;

  /// Throws InternalError for a name that the plan does not have.
  const WeightPlan& find(const std::string& name) const;
};

/// Bytes of the file that a rank reads for one weight.
uint64_t planned_bytes(const io::TensorFile& file, const WeightPlan& weight);
/// "F32", "Q4_1", "affine 4-bit g64": how the file keeps one weight.
std::string stored_as(const io::TensorFile& file, const WeightPlan& weight);

/// Throws FormatError that names the tensors of the file that no weight of the plan uses.
void check_all_used(const io::TensorFile& file, const LoadPlan& plan);

}  // namespace weft::models
