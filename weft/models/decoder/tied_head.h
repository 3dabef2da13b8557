#pragma once

#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"

namespace weft::models {

/// Tensors of the head that `file` holds although its configuration ties the head to the embedding:
/// some programs save the copy too. They are not loaded. Throws ConfigError unless each is of the
/// type and shape of the embedding's.
std::vector<std::string> copied_head(const ModelConfig& config, const io::TensorFile& file);

/// Reads those, each rank a part, and throws ConfigError on all ranks unless they are the
/// embedding's to the byte: programs differ in which of two they take. Collective over `group`.
void check_copied_head(const ModelConfig& config, const io::TensorFile& file,
                       const dist::Group& group);

}  // namespace weft::models
