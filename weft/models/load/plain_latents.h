#pragma once

#include <memory>

#include "weft/io/tensor_file.h"

namespace weft::models {

/// Whether the tensors are read, or only told of.
enum class LatentBytes { kHeaders, kRead };

/// A GGUF with latent attention has what makes keys (attn_k_b) and what makes values (attn_v_b)
/// apart, and keys' the other way round than the model multiplies, so that blocks of it are no
/// blocks of the model's matrix. Returns the same file with those of them that are blocks as
/// float16 numbers in memory, which are gone with it; null if there are none. Throws as
/// TensorFile::read_at, IoError without memory.
std::shared_ptr<const io::TensorFile> with_plain_latents(const io::TensorFile& file,
                                                         LatentBytes bytes);

}  // namespace weft::models
