#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/models/convert/export_output.h"
#include "weft/models/decoder/decoder_names.h"

namespace weft::models {

/// Whether transformers has the family's experts as [in, out], gates and ups in turn (gpt-oss).
bool has_transposed_experts(const ModelConfig& config);

/// Gives plain experts of a family that no program reads one by one the form that transformers
/// reads: one tensor for each row of fused_experts_row. `places` are those of the outputs' names.
/// Throws ConfigError for experts of one tensor that are stored in several ways.
void fuse_experts(const ModelConfig& config, const std::map<std::string, PartPlace>& places,
                  std::vector<ExportOutput>& outputs);

}  // namespace weft::models
