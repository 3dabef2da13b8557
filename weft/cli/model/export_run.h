#pragma once

#include <optional>
#include <string>

#include "weft/cli/output.h"

namespace weft::cli {

/// The checkpoint that `path` means: it is one, or the folder of a run, whose newest it is. None if
/// it is neither. Throws IoError.
std::optional<std::string> find_checkpoint(const std::string& path);

/// Writes the model of a checkpoint to a Hugging Face folder, with config.json and tokenizer;
/// `dtype` is "float32" or "bfloat16". By one process. Where a folder has more than the parameters,
/// or has them in another form (models::has_parameters_alone), the run's model.from is read, too.
/// Throws FormatError, ConfigError, IoError.
void export_run(const std::string& checkpoint, const std::string& dtype,
                const OutputOptions& output);

/// Writes the adapters of a checkpoint of weft lora to a folder as Hugging Face's peft does. By one
/// process. Throws also ConfigError for a checkpoint without adapters, and for those that peft has
/// in another form (models::check_peft_layers).
void export_peft(const std::string& checkpoint, const OutputOptions& output);

/// Writes the base of a checkpoint of weft lora with its adapters added to it, in the same form. By
/// one process. Throws also ConfigError for a checkpoint without adapters.
void fuse_run(const std::string& checkpoint, const std::string& dtype, const OutputOptions& output);

}  // namespace weft::cli
