#pragma once

#include "weft/cli/output.h"
#include "weft/dist/world.h"
#include "weft/models/convert/export.h"

namespace weft::cli {

/// Writes the model at `model` to a Hugging Face folder: weights by all ranks of the world, the
/// rest by rank 0, at last the name. Collective. Throws as models::export_weights and export_files.
void export_model(const std::string& model, const models::ExportOptions& options,
                  const std::string& dtype_name, const OutputOptions& output,
                  const dist::World& world);

/// Says on stderr what llama.cpp will not read of a GGUF file made of this folder's model.
void print_gguf_notes(const io::TensorFile& file);

}  // namespace weft::cli
