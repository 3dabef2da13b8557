#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/formats/write_safetensors.h"
#include "weft/models/config/config.h"
#include "weft/models/convert/export.h"
#include "weft/models/decoder/weights/fused_rows.h"
#include "weft/models/load/plan.h"
#include "weft/quant/integers/packed_words.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/quant/quantizers/affine_rounding.h"
#include "weft/quant/scheme.h"

namespace weft::models {

class RowReader;

/// How one weight is written to a Hugging Face folder.
struct ExportOutput {
  const PlannedWeight* weight = nullptr;
  /// Its name in the folder without ".weight"; of a stack or of fused rows, that of the whole.
  std::string base;
  /// For one of several weights that are written as one tensor, one after the other by rows: where
  /// its rows begin, and how many there are. 0: it stands alone.
  int64_t first_row = 0;
  int64_t fused_rows = 0;
  /// In which the rows of those weights stand in turn.
  RowGroups groups = {};
  /// For one of several matrices (a layer's experts) that are written as one tensor: how many, and
  /// which.
  int64_t stack_size = 0;
  int64_t stack_index = 0;
  /// Weights of a stack that Hugging Face has transposed: their rows are columns there, in turn,
  /// and this one is the first (gpt-oss's gates and ups); empty: rows are rows.
  std::vector<const PlannedWeight*> columns = {};
  /// A vector that folders have without ".weight".
  bool is_bare = false;
  /// `base` is the tensor's whole name.
  bool is_named_whole = false;
  /// A vector that Hugging Face has as a matrix of one row.
  bool is_row = false;
  /// None: floating in `dtype`.
  std::optional<quant::Scheme> scheme;
  at::ScalarType dtype = at::kFloat;
  /// From floating numbers, rather than from small ones that are there; then also of which format,
  /// and which offsets of affine.
  bool is_quantized_anew = false;
  FolderFormat format = FolderFormat::kMlx;
  quant::Offsets offsets = quant::Offsets::kAny;

  /// How an affine one stores its quant groups.
  quant::AffineForm affine_form() const {
    return {scheme->bits, scheme->group_size, scheme->scale_dtype, offsets};
  }
  bool is_affine() const { return scheme && scheme->mode == quant::Mode::kAffine; }
  const WeightRule& rule() const { return weight->rule; }
  bool has_zero_points() const { return offsets == quant::Offsets::kZeroPoints; }
  /// Rows whose zero points share a word; 1 without zero points.
  int64_t row_unit() const { return has_zero_points() ? quant::kWordBits / scheme->bits : 1; }
  /// Whether the tensors are not made by another of the same stack.
  bool makes_tensors() const { return stack_index == 0 && first_row == 0; }
  /// Where some of its rows are in the tensors; Piece::row counts from `rows.start`.
  std::vector<RowGroups::Piece> pieces(const shard::Range& rows) const;
  /// Numbers of a vector's tensor before its own.
  int64_t numbers_before() const;
  /// All that are written by it.
  std::vector<const PlannedWeight*> weights() const {
    return columns.empty() ? std::vector{weight} : columns;
  }
  /// Whether both are stored alike, so that one tensor can hold them.
  bool is_like(const ExportOutput& other) const;
  /// Of a vector, the tensor; of a plain matrix.
  std::string vector_name() const;
  std::string plain_name() const { return is_named_whole ? base : base + ".weight"; }
  /// The tensors it is written to, those of the whole stack.
  std::vector<io::TensorSpec> specs() const;

 private:
  std::vector<io::TensorSpec> compressed_specs() const;
};

/// What becomes of the numbers of a folder's tensors: quantized ones are rounded as the program
/// does whose format it is, unless a subclass says otherwise.
class FolderForm {
 public:
  FolderForm() = default;
  FolderForm(const FolderForm&) = delete;
  FolderForm& operator=(const FolderForm&) = delete;
  virtual ~FolderForm() = default;

  /// May read rows, and change the bits of those that are quantized anew. Called once, before the
  /// others, by all ranks.
  virtual void prepare(const ModelConfig& config, const RowReader& reader,
                       std::vector<ExportOutput>& outputs) {
    (void)config, (void)reader, (void)outputs;
  }
  /// Of an output with is_quantized_anew: `numbers` are rows of the weight, from `first_row` on, in
  /// float32.
  virtual quant::QuantizedMatrix quantize(const ExportOutput& output, int64_t first_row,
                                          const at::Tensor& numbers);
  /// What is written in the place of `numbers`, float32, which are rows of a plain matrix, from
  /// `first_row` on, or all of a vector.
  virtual at::Tensor changed(const ExportOutput& output, int64_t first_row,
                             const at::Tensor& numbers) {
    (void)output, (void)first_row;
    return numbers;
  }
};

/// Decides for every weight of `plan` that a folder has. What a family's folders have as one tensor
/// (weight_table.h) is written so. If any is quantized, all experts of a layer are one tensor, as
/// MLX has them; otherwise they are as transformers has them: each has its own, but gpt-oss's and
/// Gemma 4's, of which gates and ups are one tensor. Routers stay floating: rounding one would
/// choose other experts. compressed-tensors has single experts, and leaves embedding and head
/// plain. Throws ConfigError for quant groups that MLX lacks, for parts of one tensor that are
/// stored in several ways, and for experts and offsets that compressed-tensors can't have.
std::vector<ExportOutput> choose_outputs(const LoadPlan& plan, const ModelConfig& config,
                                         const ExportOptions& options);

/// MLX's "quantization" object: the commonest form for all, and those of other forms by name, as
/// mlx-lm writes it. Null if nothing is quantized.
nlohmann::json quantization_of(const std::vector<ExportOutput>& outputs);

/// compressed-tensors' "quantization_config" as llm-compressor writes it, with the linear layers
/// that are left plain as "ignore". Null if nothing is quantized.
nlohmann::json compressed_quantization_of(const std::vector<ExportOutput>& outputs,
                                          const ModelConfig& config);

}  // namespace weft::models
