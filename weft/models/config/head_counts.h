#pragma once

#include <optional>

#include "weft/io/shard_info/function_table.h"
#include "weft/io/tensor_file.h"

namespace weft::models {

/// The heads of the model whose tensors `file` holds, as config.json or MLC's mlc-chat-config.json
/// in its folder says; nothing where neither does. Any family's config will do, also one of which
/// weft builds no model. Throws FormatError or IoError for a file that can't be read.
std::optional<io::HeadCounts> read_head_counts(const io::TensorFile& file);

}  // namespace weft::models
