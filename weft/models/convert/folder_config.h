#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"

namespace weft::models {

/// The configuration of `file` as config.json of a folder has it; what a GGUF keeps in another way
/// is put into words that config.json has: Llama with a window is Mistral, and the divisors of
/// rope_freqs.weight are Llama 3's rope scaling. Throws ConfigError for a GGUF whose configuration
/// no config.json can say, else as read_config.
ModelConfig folder_config(const io::TensorFile& file);

}  // namespace weft::models
