#include "weft/models/convert/export_loaded.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/io/tensor_folder_writer.h"
#include "weft/models/config/families.h"
#include "weft/models/convert/fuse_experts.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/fused_rows.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

// Linear layers by what they compute with, then what else is a parameter (norms). A tied head is
// its embedding's.
std::map<std::string, at::Tensor> weights_of(CausalLM& model) {
  std::map<std::string, at::Tensor> weights;
  for (const nn::HeldLinear& held : nn::find_linears(model)) {
    const auto inner = held.holder->inner();
    if (inner == nullptr || (held.path == "lm_head" && model.config().is_tied)) continue;
    weights[held.path + ".weight"] = inner->dense_weight();
    const at::Tensor bias = inner->bias_or_undefined();
    if (bias.defined()) weights[held.path + ".bias"] = bias.detach();
  }
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(true);
  for (const nn::ParameterInfo& info : nn::describe_parameters(model)) {
    weights.emplace(info.name, info.tensor.detach());
  }
  return weights;
}

// How the names of buffers end in the model and in folders.
constexpr std::pair<std::string_view, std::string_view> kBuffers[] = {
    {".choice_bias", ".gate.e_score_correction_bias"},
    {".layer_scalar", ".layer_scalar"},
    {".router_factors", ".router.scale"},
    {".router.expert_factors", ".router.per_expert_scale"}};

// Parameters of a layer itself have no ".weight" in folders, and a bias of routing and factors are
// no parameters.
void name_bare(const CausalLM& model, std::map<std::string, at::Tensor>& weights) {
  const ModelConfig& config = model.config();
  for (const PartPlace& place : weight_places(config)) {
    if (!is_bare_part(place.part)) continue;
    auto own = weights.extract(model_name(config, place) + ".weight");
    if (!own.empty()) weights[model_name(config, place)] = own.mapped();
  }
  for (const auto& buffer : model.named_buffers()) {
    for (const auto& [end, name] : kBuffers) {
      if (!buffer.key().ends_with(end)) continue;
      const std::string base = buffer.key().substr(0, buffer.key().size() - end.size());
      weights[base + std::string(name)] = buffer.value();
    }
  }
}

// The experts of families that no program reads one by one, as transformers has them.
void stack_experts(const ModelConfig& config, std::map<std::string, at::Tensor>& weights) {
  if (!has_stacked_experts(family_info(config))) return;
  // By tensor and by part.
  std::map<std::string, std::map<Part, std::vector<at::Tensor>>> tensors;
  for (const PartPlace& place : weight_places(config)) {
    if (!is_expert_part(place.part)) continue;
    const std::string whole = filled_name(fused_experts_row(config, place.part)->model, place);
    for (const auto& [suffix, end] : {std::pair{".weight", ""}, {".bias", "_bias"}}) {
      auto own = weights.extract(model_name(config, place) + suffix);
      if (!own.empty()) tensors[whole + end][place.part].push_back(own.mapped());
    }
  }
  const bool is_transposed = has_transposed_experts(config);
  for (const auto& [name, parts] : tensors) {
    std::vector<at::Tensor> stacks;
    for (const auto& [part, list] : parts) stacks.push_back(at::stack(list));
    at::Tensor all = is_transposed ? at::stack(stacks, 2).flatten(1, 2) : at::cat(stacks, 1);
    weights[name] = is_transposed && all.dim() == 3 ? all.transpose(1, 2) : all;
  }
}

// Weights as one tensor, their rows as it has them.
struct Fused {
  RowGroups groups;
  std::vector<at::Tensor> parts;

  at::Tensor whole() const {
    const at::Tensor rows = at::cat(parts);
    at::Tensor whole = at::empty_like(rows);
    for (const auto& piece : groups.pieces({0, rows.size(0)})) {
      whole.narrow(0, piece.stored_row, piece.length)
          .copy_(rows.narrow(0, piece.row, piece.length));
    }
    return whole;
  }
};

// What the family's folders have as one tensor, as that.
void fuse_rows(const ModelConfig& config, std::map<std::string, at::Tensor>& weights) {
  std::map<std::string, Fused> wholes;
  for (const PartPlace& place : weight_places(config)) {
    const FusedRow* fused = fused_row(config, place.part);
    if (fused == nullptr) continue;
    for (const char* suffix : {".weight", ".bias"}) {
      auto own = weights.extract(model_name(config, place) + suffix);
      if (own.empty()) continue;
      Fused& whole = wholes[filled_name(fused->model, place) + suffix];
      whole.groups = row_groups(config, *fused);
      whole.parts.push_back(own.mapped());
    }
  }
  for (const auto& [name, fused] : wholes) weights[name] = fused.whole();
}

}  // namespace

bool has_parameters_alone(const ModelConfig& config) {
  return std::ranges::none_of(weight_places(config), [&](const PartPlace& place) {
    return is_bare_part(place.part) || is_joined_in_folders(config, place.part);
  });
}

void export_loaded(CausalLM& model, io::Dtype dtype, uint64_t max_file_bytes,
                   const std::string& folder) {
  auto weights = weights_of(model);
  fuse_rows(model.config(), weights);
  name_bare(model, weights);
  stack_experts(model.config(), weights);
  std::vector<io::TensorSpec> tensors;
  for (const auto& [name, weight] : weights) {
    tensors.push_back({name, dtype, weight.sizes().vec()});
  }
  io::TensorFolderWriter writer(folder,
                                io::spread_over_files(tensors, max_file_bytes, {{"format", "pt"}}),
                                io::TensorFolderWriter::Role::kLaysOut);
  for (const auto& [name, weight] : weights) {
    const at::Tensor values =
        weight.to(dtype == io::Dtype::kBF16 ? at::kBFloat16 : at::kFloat).contiguous();
    const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
    writer.write(name, 0, std::span(bytes, values.nbytes()));
  }
  writer.sync();
  writer.verify();
}

}  // namespace weft::models
