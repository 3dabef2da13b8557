#include "weft/models/decoder/weights/mlx_taps.h"

#include <algorithm>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/weight_table.h"

// Source: the PyPI package mlx-lm, `sanitize` of models/qwen3_5.py, qwen3_next.py and lfm2.py.

namespace weft::models {
namespace {

using core::check;

// Taps are cut by channels, so that a rank's piece has their order, too.
const io::TensorMeta* stored_taps(const io::TensorFile& file, const std::string& name) {
  const io::TensorMeta* whole = file.find(name);
  if (whole != nullptr) return whole;
  const auto piece = std::ranges::find_if(file.tensors(), [&](const io::TensorMeta& tensor) {
    return tensor.name.starts_with(name + "_shard-");
  });
  return piece == file.tensors().end() ? nullptr : &*piece;
}

// Those of all layers in one of the two orders; others are refused where they are read.
std::vector<const io::TensorMeta*> all_taps(const ModelConfig& config, const io::TensorFile& file) {
  std::vector<const io::TensorMeta*> all;
  const int64_t length = config.recurrent.num_taps;
  for (const int64_t layer : config.recurrent.layers) {
    const std::string name = model_name(config, {Part::kConvolution, layer}) + ".weight";
    const io::TensorMeta* taps = stored_taps(file, folder_name(file, name));
    if (taps == nullptr || taps->shape.size() != 3) continue;
    const int64_t middle = taps->shape[1], last = taps->shape[2];
    if ((middle == 1 && last == length) || (middle == length && last == 1)) all.push_back(taps);
  }
  return all;
}

std::string where_taps(const io::TensorFile& file, const io::TensorMeta& taps) {
  return core::join(file.path(), ": tensor ", core::quote(taps.name), ": shape ",
                    core::list_text(taps.shape));
}

// What mlx-lm's programs write into every file, and weft into what it quantizes and cuts for them.
bool has_mlx_format(const io::TensorFile& file) {
  const auto format = file.metadata().find("format");
  return format != file.metadata().end() && format->second == io::MetaValue(std::string("mlx"));
}

// Experts one by one are what transformers has. MLX's program for Qwen3-Next takes the norms beside
// them for transformers', too, whatever the order of taps.
void check_stacked_experts(const ModelConfig& config, const io::TensorFile& file,
                           const io::TensorMeta& taps) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.has_experts(layer)) continue;
    const std::string expert =
        folder_name(file, model_name(config, {Part::kExpertUp, layer}) + ".weight");
    check<core::FormatError>(file.find(expert) == nullptr, where_taps(file, taps),
                             " as MLX has it beside ", core::quote(expert),
                             " as transformers has it, expected both as one of them: norms differ "
                             "by ",
                             config.norm_offset, "; convert the original model anew");
  }
}

}  // namespace

bool has_mlx_taps(const ModelConfig& config, const io::TensorFile& file) {
  if (file.is_gguf()) return false;
  const std::vector<const io::TensorMeta*> all = all_taps(config, file);
  if (all.empty()) return false;
  const io::TensorMeta& first = *all.front();
  for (const io::TensorMeta* taps : all) {
    check<core::FormatError>(taps->shape[2] == first.shape[2], where_taps(file, *taps), ", but ",
                             core::quote(first.name), " has ", core::list_text(first.shape),
                             ", expected all as MLX or all as transformers has them; convert the "
                             "original model anew");
  }
  const bool says_mlx = has_mlx_format(file), has_offset = config.norm_offset != 0;
  if (config.recurrent.num_taps == 1) {
    check<core::FormatError>(!says_mlx || !has_offset, where_taps(file, first),
                             " in a file of format 'mlx', expected at least 2 taps, whose order ",
                             "tells whether norms have ", config.norm_offset,
                             " added; take the original model");
    return false;
  }
  const bool is_mlx = first.shape[2] == 1;
  if (is_mlx && has_offset && !says_mlx) check_stacked_experts(config, file, first);
  return is_mlx;
}

}  // namespace weft::models
