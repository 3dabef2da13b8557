#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/convert/export_output.h"
#include "weft/models/quantize/folder_budget.h"
#include "weft/models/quantize/importance.h"
#include "weft/models/quantize/input_scales.h"
#include "weft/models/quantize/rounding.h"

namespace weft::models {

/// How the small numbers of a folder are found.
struct RoundingMethod {
  /// Columns are rounded with error feedback (GPTQ).
  bool has_feedback = false;
  /// Columns are scaled by their inputs before (AWQ).
  bool scales_inputs = false;

  /// Neither: the format's own rule.
  bool is_plain() const { return !has_feedback && !scales_inputs; }
};

/// "round", "gptq", "awq" or "awq+gptq". Throws ConfigError, beginning with `where`, for another.
RoundingMethod parse_method(const std::string& name, const std::string& where);

/// What is rounded by, and where it was read.
struct FolderRounding {
  RoundingMethod method;
  std::string importance_path;
  Importance importance;
  /// The most of all that is written, which set_bits_within spreads; 0: all matrices get those of
  /// the scheme, which is affine.
  double bits_per_weight = 0;
};

/// Quantizes affine matrices on their way into a folder.
class QuantizedFolder : public FolderForm {
 public:
  /// The ranks of `group` share the search for scales.
  QuantizedFolder(FolderRounding rounding, const dist::Group& group)
      : rounding_(std::move(rounding)), group_(group) {}

  /// Collective. Throws ConfigError for a family that AWQ doesn't know, for importances without
  /// what the method needs and for fewer bits than the smallest, FormatError for importances of
  /// other columns.
  void prepare(const ModelConfig& config, const RowReader& reader,
               std::vector<ExportOutput>& outputs) override;
  /// Throws ShapeError for numbers whose scales the type of scales can't hold.
  quant::QuantizedMatrix quantize(const ExportOutput& output, int64_t first_row,
                                  const at::Tensor& numbers) override;
  at::Tensor changed(const ExportOutput& output, int64_t first_row,
                     const at::Tensor& numbers) override;

  /// One line for each thing worth knowing, after prepare.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Of all that is written, after prepare.
  double bits_per_weight() const { return bits_per_weight_; }

 private:
  struct Named {
    std::string tensor;
    TensorMatrix matrix;
  };
  Named named(const ExportOutput& output) const;
  const Rounding& rounding_of(const ExportOutput& output);
  void note_missing(const std::vector<ExportOutput>& outputs);
  void choose_bits(const RowReader& reader, std::vector<ExportOutput>& outputs);
  BitLosses losses_of(const ExportOutput& output, const at::Tensor& rows, size_t first,
                      bool by_products);

  FolderRounding rounding_;
  dist::Group group_;
  ModelConfig config_;
  std::map<std::string, PartPlace> places_;
  InputScales scales_;
  // Of the matrix that is being written.
  std::optional<Rounding> current_;
  std::string current_name_;
  std::vector<std::string> notes_;
  double bits_per_weight_ = 0;
};

}  // namespace weft::models
