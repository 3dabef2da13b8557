#include "weft/models/decoder/decoder_names.h"

#include <algorithm>
#include <array>

#include "weft/core/error.h"
#include "weft/io/matrices/matrix_format.h"
#include "weft/models/decoder/weight_table.h"

namespace weft::models {
namespace {

std::string expert_name(std::string_view name, const PartPlace& place) {
  core::check<core::InternalError>(!name.empty(), "models: not the weight of an expert");
  return filled_name(name, place);
}

}  // namespace

bool is_norm_part(Part part) {
  constexpr std::array kNorms = {
      Part::kFinalNorm,    Part::kInputNorm,           Part::kFfnNorm,      Part::kAttentionOutNorm,
      Part::kFfnOutNorm,   Part::kQueryNorm,           Part::kKeyNorm,      Part::kQueryLatentNorm,
      Part::kKvLatentNorm, Part::kInputProjectionNorm, Part::kInputOutNorm, Part::kPlainOutNorm,
      Part::kExpertsNorm,  Part::kExpertsOutNorm};
  return std::ranges::find(kNorms, part) != kNorms.end();
}

bool is_bare_part(Part part) {
  constexpr std::array kBare = {Part::kSinks,         Part::kChoiceBias,  Part::kDeltaDecayLog,
                                Part::kDeltaStepBias, Part::kLayerFactor, Part::kRouterFactors,
                                Part::kExpertFactors};
  return std::ranges::find(kBare, part) != kBare.end();
}

std::string gguf_suffix(Part part) {
  if (part == Part::kDeltaDecayLog) return "";
  if (part == Part::kRouterFactors || part == Part::kExpertFactors) return ".scale";
  return part == Part::kChoiceBias || part == Part::kDeltaStepBias ? ".bias" : ".weight";
}

bool is_expert_part(Part part) {
  return part == Part::kExpertGate || part == Part::kExpertUp || part == Part::kExpertDown;
}

std::map<std::string, PartPlace> part_places(const ModelConfig& config) {
  std::map<std::string, PartPlace> places;
  for (const PartPlace& place : weight_places(config)) places[model_name(config, place)] = place;
  return places;
}

std::string model_name(const ModelConfig& config, const PartPlace& place) {
  return filled_name(weight_row(config, place).model, place);
}

std::string module_name(const ModelConfig& config, const PartPlace& place) {
  const std::string name = model_name(config, place);
  return name.substr(name.rfind('.') + 1);
}

std::string outer_module_name(const ModelConfig& config, const PartPlace& place) {
  const std::string name = model_name(config, place);
  const std::string outer = name.substr(0, name.rfind('.'));
  return outer.substr(outer.rfind('.') + 1);
}

std::string folder_name(const io::TensorFile& file, const std::string& name) {
  constexpr std::string_view kOuter = "model.", kInner = "model.language_model.";
  const std::string mlx = "language_model.";
  if (file.is_gguf()) return name;
  if (io::has_matrix(file, mlx + "model.embed_tokens")) return mlx + name;
  const bool is_within =
      name.starts_with(kOuter) && io::has_matrix(file, std::string(kInner) + "embed_tokens");
  return is_within ? std::string(kInner) + name.substr(kOuter.size()) : name;
}

std::string gguf_name(const ModelConfig& config, const PartPlace& place) {
  return filled_name(weight_row(config, place).gguf, place);
}

std::string mlx_experts_name(const ModelConfig& config, const PartPlace& place) {
  return expert_name(weight_row(config, place).mlx, place);
}

std::string old_gguf_expert_name(const ModelConfig& config, const PartPlace& place) {
  return expert_name(weight_row(config, place).old_gguf, place);
}

}  // namespace weft::models
