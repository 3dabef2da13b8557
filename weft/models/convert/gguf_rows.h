#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "weft/models/convert/gguf_outputs.h"
#include "weft/models/convert/row_reader.h"

namespace weft::models {

/// Reads the rows of a GGUF file's tensors in its order, a few megabytes at a time.
class GgufRows {
 public:
  /// Keeps references to both.
  GgufRows(const io::TensorFile& file, const LoadPlan& plan) : reader_(file, plan) {}

  /// Rows one after the other, or a vector's numbers: floating, in the model's type or float32.
  using Visit = std::function<void(const at::Tensor& rows)>;
  /// All rows of a source, in runs. Throws FormatError, IoError.
  void visit(const GgufSource& source, at::ScalarType type, const Visit& visit) const;

 private:
  RowReader reader_;
};

}  // namespace weft::models
