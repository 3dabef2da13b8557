#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/convert/export_output.h"
#include "weft/models/convert/row_reader.h"
#include "weft/models/quantize/importance.h"

/// Factors of the columns of matrices, by which what makes their inputs is divided: the model
/// computes the same, and columns that are read with large numbers are rounded more finely. Source:
/// Lin et al. 2023, "AWQ", arXiv:2306.00978.
namespace weft::models {

/// Throws ConfigError for a model whose layers are not like Llama's, naming what it has beyond
/// them.
void check_scales_fold(const ModelConfig& config);

/// What one model's factors are.
class InputScales {
 public:
  /// All are 1.
  InputScales() = default;
  /// For what reads one input, the query, key and value of a layer, its gate and up or all experts'
  /// with the router, its output and each down, tries powers of the inputs' size, with and without
  /// powers of the columns' own, and takes those with which rounding a sample of the rows costs
  /// least; an expert's cost counts the tokens that it got. The norm before them, or the values' or
  /// up's rows, take the inverse. The ranks of `group` search some inputs each;
  /// collective, the same on all. Throws FormatError for a matrix of which `importance` says
  /// nothing.
  InputScales(const ModelConfig& config, const RowReader& reader,
              const std::vector<ExportOutput>& outputs, const Importance& importance,
              const dist::Group& group);

  /// Factors of a matrix's columns, float32 [in]; undefined: all are 1.
  at::Tensor of_columns(const ExportOutput& output) const;
  /// What becomes of a matrix's rows from `first_row` on, or of a whole vector, in float32.
  at::Tensor folded(const ExportOutput& output, int64_t first_row, const at::Tensor& numbers) const;

 private:
  // By names of weights without ".weight": factors of columns, and divisors of rows and biases.
  std::map<std::string, at::Tensor> columns_, rows_;
  // By the same of norms: what they become.
  std::map<std::string, at::Tensor> norms_;
};

}  // namespace weft::models
