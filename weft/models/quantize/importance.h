#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/models/decoder/decoder_names.h"

namespace weft::io {
class TensorFile;
}

namespace weft::models {

/// What a matrix's inputs were over a text.
struct InputStatistics {
  /// Sums of the squares of each input: float32 [matrices, in]; one matrix, or one for each expert.
  at::Tensor squares;
  /// Tokens behind them: float32 [matrices].
  at::Tensor counts;
  /// Sums of the products of every two inputs of a token times the mean square of the gradients of
  /// the loss by what the matrix returned for it (collect.h): float32 [in, in]; undefined: not
  /// taken, or still in the file. With D the error of a matrix, the trace of D P D^T over twice the
  /// tokens is about what the loss of a token grows by.
  at::Tensor products = {};
};

/// A matrix of a tensor.
struct TensorMatrix {
  int64_t columns = 0;
  /// Which one of those that the tensor has, of experts or of heads, and how many it has.
  int64_t index = 0;
  int64_t count = 1;
};

/// An importance matrix: by GGUF's tensor names ("blk.0.attn_q.weight") what inputs the matrices
/// had.
struct Importance {
  std::map<std::string, InputStatistics> tensors;
  /// The texts' paths.
  std::vector<std::string> texts;
  int64_t num_chunks = 0;
  /// Tokens of each.
  int64_t chunk_size = 0;
  /// Where products are read from when they are asked for, because those of all matrices take more
  /// memory than the model; null: they are in `tensors`.
  std::shared_ptr<const io::TensorFile> file = nullptr;

  /// Mean squares, float32 [in], of one matrix's inputs, in the tensor's order of columns.
  /// Undefined for a tensor that is not there, and for an expert that no token reached. Throws
  /// FormatError for another number of columns or of matrices, naming the tensor.
  at::Tensor of(const std::string& tensor, const TensorMatrix& matrix) const;
  /// Tokens behind those; 0 for a tensor that is not there. Throws as `of`.
  double tokens_of(const std::string& tensor, const TensorMatrix& matrix) const;
  bool has_products(const std::string& tensor) const;
  /// Mean products, float32 [in, in]; undefined if they were not taken. Throws FormatError for a
  /// file that has others than finite numbers, IoError.
  at::Tensor products_of(const std::string& tensor) const;
};

/// What an importance matrix calls a weight of the model: GGUF's name of the tensor that holds it.
std::string importance_name(const ModelConfig& config, const PartPlace& place);

/// Reads what llama.cpp's imatrix or weft's writes: GGUF of general.type "imatrix", or the older
/// binary form. Throws FormatError, IoError.
Importance read_importance(const std::string& path);

/// Writes llama.cpp's GGUF form: for each tensor NAME.in_sum2 and NAME.counts; products, which only
/// weft knows, as NAME.in_products. Throws IoError, ConfigError.
void write_importance(const Importance& importance, const std::string& path);

}  // namespace weft::models
