#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "weft/dist/group.h"
#include "weft/io/tensor_file.h"
#include "weft/quant/quantizers/affine_rounding.h"
#include "weft/quant/scheme.h"

namespace weft::models {

class FolderForm;

/// Whose quantized matrices a folder has.
enum class FolderFormat {
  /// MLX's, of all modes.
  kMlx,
  /// compressed-tensors' pack-quantized: linear layers but the head, affine in 4 or 8 bits.
  kCompressed,
};

/// What becomes of a model's weights when they are written anew.
struct ExportOptions {
  /// All weights floating, in this type.
  std::optional<at::ScalarType> dtype;
  /// Matrices whose inputs are whole quant groups, quantized anew. Affine's scales and offsets get
  /// the matrix's type, or float16 if it was quantized.
  std::optional<quant::Scheme> scheme;
  /// Of these matrices, and the offsets of affine; all of MLX's are kAny.
  FolderFormat format = FolderFormat::kMlx;
  quant::Offsets offsets = quant::Offsets::kAny;
  /// Makes small numbers of them; null: by the format's own rule.
  FolderForm* form = nullptr;
  /// Most bytes of data per file.
  uint64_t max_file_bytes = 5'000'000'000;
};

/// Sees the bytes of the source that are done.
using ExportProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Writes the weights of `file`, of any format, under Hugging Face's names and in its order of rows
/// to the folder `folder`, as safetensors, and verifies what was written. Without options a weight
/// stays as it is stored; GGUF blocks become MLX's affine parts with the same values where MLX has
/// such groups (of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K), else float16; numbers of 8 bits
/// with scales become bfloat16. Each rank writes
/// its part of every matrix's rows, some megabytes at a time, and the files are the same on any
/// number of ranks. Returns what config.json has to say about the quantization: MLX's
/// "quantization" object, compressed-tensors' "quantization_config", or null. Collective over
/// `group`; `folder` is one, empty, that all ranks see. Throws on all ranks alike: FormatError,
/// ConfigError, IoError.
nlohmann::json export_weights(const io::TensorFile& file, const ExportOptions& options,
                              const dist::Group& group, const std::string& folder,
                              const ExportProgress& progress);

/// Writes what a Hugging Face folder holds beside its weights: copies of those of `file`'s folder,
/// or for a GGUF made from its keys (config.json, generation_config.json, tokenizer.json,
/// tokenizer_config.json with the chat template). config.json gets `quantization` under MLX's two
/// names, that of another program ("quant_method") under "quantization_config" alone, or loses both
/// if it is null. `dtype` is the weights' type, for config.json: "float16";
/// empty: as it was. Throws FormatError, ConfigError, IoError.
void export_files(const io::TensorFile& file, const nlohmann::json& quantization,
                  const std::string& dtype, const std::string& folder);

/// The same for a model that no file has: `config` as config.json (config_json), and the
/// tokenizer's files of a Hugging Face folder, of the folder around a tokenizer.json, or made from
/// a GGUF's keys.
void export_new_files(const nlohmann::json& config, const std::string& tokenizer_path,
                      const std::string& dtype, const std::string& folder);

}  // namespace weft::models
