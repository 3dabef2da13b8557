#pragma once

#include <cstdint>
#include <string>

#include "weft/io/dtype.h"
#include "weft/train/checkpoint/reader.h"

namespace weft::train {

/// Writes a checkpoint's masters as a model's weights: whole tensors under the parameters' names,
/// in safetensors files of at most `max_file_bytes` of data, with an index if there are several;
/// some megabytes at a time, whatever cut the checkpoint has. `folder` is an empty one that nobody
/// looks at yet (core::AtomicFolder); what stands beside weights (config.json, tokenizer) is the
/// caller's. `dtype` is float32 or bfloat16, rounded to the nearest, ties to even. Throws
/// ConfigError for other types, FormatError and IoError as CheckpointReader and
/// io::TensorFolderWriter.
void write_weights(CheckpointReader& reader, io::Dtype dtype, uint64_t max_file_bytes,
                   const std::string& folder);

}  // namespace weft::train
