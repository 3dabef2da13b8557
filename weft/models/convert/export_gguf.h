#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "weft/io/formats/write_gguf.h"
#include "weft/io/tensor_file.h"
#include "weft/models/convert/export.h"
#include "weft/models/convert/gguf_outputs.h"
#include "weft/models/convert/gguf_rows.h"

namespace weft::models {

/// What becomes of the numbers of a GGUF file's tensors: plain ones unless a subclass says
/// otherwise.
class GgufForm {
 public:
  GgufForm() = default;
  GgufForm(const GgufForm&) = delete;
  GgufForm& operator=(const GgufForm&) = delete;
  virtual ~GgufForm() = default;

  /// Sets spec.dtype of the matrices (GgufOutput::is_matrix) that are not plain, and `type`, if
  /// they are. May read rows. Called once, before the others, by all ranks.
  virtual void choose_types(const ModelConfig& config, const GgufRows& rows,
                            std::vector<GgufOutput>& outputs) {
    (void)config, (void)rows, (void)outputs;
  }
  /// Keys beside the model's and the tokenizer's.
  virtual std::vector<io::GgufKey> keys() const { return {}; }
  /// The bytes of some rows of an output, contiguous. Called by all ranks, with the same rows.
  virtual at::Tensor encode(const GgufOutput& output, const GgufSource& source,
                            const at::Tensor& rows);
};

/// Writes the model as a GGUF file that llama.cpp reads: matrices in `dtype` (without it as they
/// are stored, quantized ones in float16), vectors in float32, rows in GGUF's order, the tokenizer
/// and the chat template in its keys. One tensor is in memory at a time. Throws ConfigError for a
/// family or a tokenizer that it has no names for; FormatError, IoError.
void export_gguf(const io::TensorFile& file, std::optional<at::ScalarType> dtype,
                 const std::string& path, const ExportProgress& progress);

/// The same with the types and bytes that `form` gives, of which rank 0 makes the file: it is the
/// same on any number of ranks. Collective over `group`. Throws also what `form` throws.
void export_gguf(const io::TensorFile& file, GgufForm& form, const dist::Group& group,
                 const std::string& path, const ExportProgress& progress);

}  // namespace weft::models
