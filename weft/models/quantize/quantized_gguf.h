#pragma once

#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/convert/export_gguf.h"
#include "weft/models/quantize/importance.h"
#include "weft/models/quantize/mix.h"
#include "weft/models/quantize/rounding.h"

namespace weft::models {

/// A type for the tensors in whose names an expression is found.
struct TensorTypeRule {
  /// As it was written, for messages.
  std::string text;
  std::regex expression;
  core::Dtype type;
};

/// How a GGUF file's matrices are quantized.
struct QuantizationOptions {
  /// With a budget: what the matrices that it leaves alone have.
  const GgufMix* mix = nullptr;
  /// Bits per weight that all tensors may take on average, norms and tables included; 0: the mix's.
  double bits_per_weight = 0;
  /// Of token_embd and output; none: the mix's.
  std::optional<core::Dtype> embedding, head;
  /// The first that is found in a name counts.
  std::vector<TensorTypeRule> tensors;
  /// Where it was read; empty: none.
  std::string importance_path;
  Importance importance;
};

/// Quantizes matrices on their way into a GGUF file. What is done otherwise than the mix says, it
/// says in notes().
class QuantizedForm : public GgufForm {
 public:
  /// The ranks of `group` share the work.
  QuantizedForm(QuantizationOptions options, const dist::Group& group)
      : options_(std::move(options)), group_(group) {}

  /// Collective. Throws also FormatError for importances of other columns, ConfigError for a budget
  /// that is too small and for an expression that no matrix's name has.
  void choose_types(const ModelConfig& config, const GgufRows& rows,
                    std::vector<GgufOutput>& outputs) override;
  /// general.file_type, general.quantization_version and, with importances, quantize.imatrix.*.
  std::vector<io::GgufKey> keys() const override;
  /// Collective. Throws ShapeError for numbers that a type can't hold.
  at::Tensor encode(const GgufOutput& output, const GgufSource& source,
                    const at::Tensor& rows) override;

  /// One line for each thing worth knowing, after choose_types.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Bits for each number of all tensors, after choose_types.
  double bits_per_weight() const { return bits_per_weight_; }

 private:
  const Rounding& rounding_of(const GgufOutput& output, const GgufSource& source);
  /// What the options say of this tensor alone.
  std::optional<core::Dtype> fixed_type(const ModelConfig& config, const GgufOutput& output) const;
  void check_rules(const std::vector<GgufOutput>& outputs) const;
  void note_fallbacks(const std::vector<GgufOutput>& outputs,
                      const std::vector<core::Dtype>& wanted);
  void note_importance(const std::vector<GgufOutput>& outputs);
  void note_products(const std::vector<GgufOutput>& outputs,
                     const std::function<bool(const GgufOutput&)>& is_fixed);

  QuantizationOptions options_;
  dist::Group group_;
  // Of the tensor, or the expert, that is being written.
  std::optional<Rounding> rounding_;
  std::pair<std::string, int64_t> rounded_;
  std::vector<std::string> notes_;
  double bits_per_weight_ = 0;
};

/// Bits for each number of all outputs.
double bits_per_weight(const std::vector<GgufOutput>& outputs);

}  // namespace weft::models
