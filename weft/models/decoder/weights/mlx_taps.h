#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"

namespace weft::models {

/// Whether a program of MLX's has written the folder, as these programs themselves tell it: the
/// taps of its convolutions are [channels, taps, 1], where transformers has [channels, 1, taps].
/// What norms add to their weights (ModelConfig::norm_offset) is then in the file's. False for GGUF
/// and for models without convolutions. Throws FormatError where this can't be known: layers in
/// both orders, MLX's order beside transformers' experts, or a single tap where norms differ.
bool has_mlx_taps(const ModelConfig& config, const io::TensorFile& file);

}  // namespace weft::models
