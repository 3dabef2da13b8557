#include "weft/models/convert/export_output.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/convert/export_types.h"
#include "weft/models/convert/fuse_experts.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/quant/formats/gguf_blocks.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::quote;
using quant::kWordBits;

// The quant groups that MLX has.
constexpr int64_t kMlxGroups[] = {32, 64, 128};

bool is_mlx_group(int64_t size) {
  return std::find(std::begin(kMlxGroups), std::end(kMlxGroups), size) != std::end(kMlxGroups);
}

// The release whose files these are.
constexpr const char* kCompressedTensors = "0.12.0";

// Tables of vectors, which compressed-tensors' folders have plain.
bool is_lookup(Part part) { return part == Part::kEmbedding || part == Part::kInputEmbedding; }

bool is_router(Part part) { return part == Part::kRouter || part == Part::kSharedRouter; }

class FormChooser {
 public:
  FormChooser(const LoadPlan& plan, const ModelConfig& config, const ExportOptions& options)
      : plan_(plan), config_(config), options_(options), places_(part_places(config)) {}

  std::vector<ExportOutput> choose() const {
    std::vector<ExportOutput> outputs;
    for (const PlannedWeight& weight : plan_.weights()) {
      // In a folder config.json says it.
      if (weight.rule.name == kRopeDivisors) continue;
      outputs.push_back(choose(weight));
      check_group(outputs.back());
    }
    const bool is_compressed = options_.format == FolderFormat::kCompressed;
    check<ConfigError>(!is_compressed || options_.offsets != quant::Offsets::kAny,
                       "models.export: compressed-tensors with offsets of any kind, expected the "
                       "middle or zero points; set ExportOptions::offsets");
    const bool has_experts = config_.experts.num_experts > 0;
    check<ConfigError>(!is_compressed || !has_experts || !is_stacked_everywhere(),
                       "models.export: ", quote(config_.family),
                       " has a layer's experts in one tensor, expected ",
                       "single ones for compressed-tensors; write MLX's format");
    const bool is_mlx = !is_compressed && std::ranges::any_of(outputs, [](const ExportOutput& o) {
      return o.scheme.has_value();
    });
    fuse_rows(outputs);
    name_bare(outputs);
    if (is_mlx) {
      stack_experts(outputs);
    } else if (is_stacked_everywhere()) {
      fuse_experts(config_, places_, outputs);
    }
    return outputs;
  }

 private:
  ExportOutput choose(const PlannedWeight& weight) const {
    ExportOutput output;
    output.weight = &weight;
    output.base = weight.rule.base();
    const io::Dtype stored = plan_.recipe(weight, 0, 0).result.dtype();
    output.dtype = options_.dtype.value_or(plain_type(weight.format.kind, stored));
    const auto place = places_.find(output.base);
    const bool is_routing = place != places_.end() && is_router(place->second.part);
    output.is_row = is_routing && weight.rule.is_vector();
    if (options_.dtype || weight.rule.is_vector()) return output;
    if (options_.scheme) {
      return is_routing || is_left_plain(place, weight) ? output : quantized(output, weight);
    }
    return io::makes_plain(weight.format.kind) ? output : as_stored(output, weight, stored);
  }

  bool is_left_plain(std::map<std::string, PartPlace>::const_iterator place,
                     const PlannedWeight& weight) const {
    if (options_.format == FolderFormat::kMlx || place == places_.end()) return false;
    const Part part = place->second.part;
    const bool fills_words = options_.offsets != quant::Offsets::kZeroPoints ||
                             weight.rule.out * options_.scheme->bits % kWordBits == 0;
    return part == Part::kHead || is_lookup(part) || !fills_words;
  }

  ExportOutput quantized(ExportOutput output, const PlannedWeight& weight) const {
    if (weight.rule.in % options_.scheme->group_size != 0) return output;
    output.format = options_.format;
    output.offsets = options_.offsets;
    output.scheme = options_.scheme;
    output.scheme->scale_dtype = output.dtype;
    output.is_quantized_anew = true;
    return output;
  }

  ExportOutput as_stored(ExportOutput output, const PlannedWeight& weight, io::Dtype stored) const {
    const io::MatrixFormat& format = weight.format;
    if (format.kind == io::MatrixKind::kAffine) {
      const at::ScalarType scales = torch_type(plan_.recipe(weight, 1, 0).result.dtype());
      output.scheme = {quant::Mode::kAffine, format.bits, format.group_size, scales};
    } else if (format.kind == io::MatrixKind::kMicroscaled) {
      output.scheme = quant::parse_scheme(format.text, weight.rule.name);
    } else if (format.kind == io::MatrixKind::kGgufBlocks) {
      // Blocks whose groups MLX does not have become plain numbers.
      const quant::GgufBlockInfo& block = quant::gguf_block_info(stored);
      if (!is_mlx_group(block.group_size)) return output;
      output.scheme = {quant::Mode::kAffine, block.bits, block.group_size, block.scale_dtype()};
    } else if (is_mlx_group(format.in_unit)) {
      // AWQ's, GPTQ's and scaled integers: zero points times scales take more bits than half types
      // have.
      output.scheme = {quant::Mode::kAffine, format.bits, format.in_unit, at::kFloat};
    }
    return output;
  }

  static void check_group(const ExportOutput& output) {
    check<ConfigError>(!output.is_affine() || is_mlx_group(output.scheme->group_size),
                       "models.export: ", quote(output.rule().name), ": quant groups of ",
                       output.scheme ? output.scheme->group_size : 0,
                       ", expected 32, 64 or 128; give --dtype");
  }

  // Of which part a weight or a bias is.
  const PartPlace* place_of(const WeightRule& rule) const {
    const auto found = places_.find(rule.name.substr(0, rule.name.rfind('.')));
    return found == places_.end() ? nullptr : &found->second;
  }

  void fuse_rows(std::vector<ExportOutput>& outputs) const {
    std::map<std::string, const ExportOutput*> firsts;
    for (ExportOutput& output : outputs) {
      const std::string& name = output.rule().name;
      const PartPlace* place = place_of(output.rule());
      const FusedRow* fused = place == nullptr ? nullptr : fused_row(config_, place->part);
      if (fused == nullptr) continue;
      const FusedPlace own = fused_place(config_, *fused, place->part);
      output.first_row = own.first_row;
      output.fused_rows = own.num_rows;
      output.groups = row_groups(config_, *fused);
      output.base = filled_name(fused->model, *place);
      const std::string tensor = output.base + name.substr(name.rfind('.'));
      const auto [first, is_first] = firsts.emplace(tensor, &output);
      check<ConfigError>(is_first || first->second->is_like(output), "models.export: ", quote(name),
                         " is not stored as the other rows of ", quote(tensor), "; give --dtype");
      const bool fills_words = std::ranges::all_of(
          output.groups.lengths, [&](int64_t rows) { return rows % output.row_unit() == 0; });
      check<ConfigError>(fills_words, "models.export: ", quote(tensor), ", expected runs of ",
                         output.row_unit(),
                         " rows, whose zero points fill a word; write it "
                         "symmetric");
    }
  }

  // Whose experts no program reads one by one.
  bool is_stacked_everywhere() const {
    const FamilyInfo* family = find_family_info(config_.family);
    return family != nullptr && has_stacked_experts(*family);
  }

  // Parameters of a layer itself, which folders have without ".weight".
  void name_bare(std::vector<ExportOutput>& outputs) const {
    for (ExportOutput& output : outputs) {
      const PartPlace* place = place_of(output.rule());
      output.is_bare = place != nullptr && is_bare_part(place->part);
    }
  }

  void stack_experts(std::vector<ExportOutput>& outputs) const {
    std::map<std::string, const ExportOutput*> firsts;
    for (ExportOutput& output : outputs) {
      const PartPlace* place = place_of(output.rule());
      if (place == nullptr || !is_expert_part(place->part)) continue;
      output.base = mlx_experts_name(config_, *place);
      output.stack_size = config_.experts.num_experts;
      output.stack_index = place->expert;
      const std::string suffix = output.rule().is_vector() ? ".bias" : ".weight";
      const auto [first, is_first] = firsts.emplace(output.base + suffix, &output);
      check<ConfigError>(is_first || first->second->is_like(output),
                         "models.export: ", quote(output.rule().name),
                         " is not stored as the layer's other experts, with which MLX has it in "
                         "one tensor; give --dtype to weft convert first");
    }
  }

  const LoadPlan& plan_;
  const ModelConfig& config_;
  const ExportOptions& options_;
  std::map<std::string, PartPlace> places_;
};

nlohmann::json compressed_form(const ExportOutput& output) {
  return {{"actorder", nullptr},
          {"block_structure", nullptr},
          {"dynamic", false},
          {"group_size", output.scheme->group_size},
          {"num_bits", output.scheme->bits},
          {"observer", "minmax"},
          {"observer_kwargs", nlohmann::json::object()},
          {"strategy", "group"},
          {"symmetric", !output.has_zero_points()},
          {"type", "int"}};
}

// Of the linear layers that are left plain; of a tied head, too, which no tensor has.
std::vector<std::string> plain_linears(const std::vector<ExportOutput>& outputs,
                                       const ModelConfig& config) {
  const auto places = part_places(config);
  std::vector<std::string> names;
  for (const ExportOutput& output : outputs) {
    const auto place = places.find(output.rule().base());
    const bool is_matrix = !output.rule().is_vector() || output.is_row;
    const bool is_linear =
        place != places.end() && is_matrix && !output.scheme && !is_lookup(place->second.part);
    if (is_linear && std::ranges::find(names, output.base) == names.end())
      names.push_back(output.base);
  }
  return names;
}

nlohmann::json form_of(const quant::Scheme& scheme) {
  return {{"group_size", scheme.group_size},
          {"bits", scheme.bits},
          {"mode", quant::mode_info(scheme.mode).name}};
}

}  // namespace

quant::QuantizedMatrix FolderForm::quantize(const ExportOutput& output, int64_t,
                                            const at::Tensor& numbers) {
  if (output.is_affine()) return quant::round_in_range(numbers, output.affine_form());
  return quant::quantize(numbers, *output.scheme);
}

bool ExportOutput::is_like(const ExportOutput& other) const {
  return scheme == other.scheme && (scheme || dtype == other.dtype);
}

std::vector<RowGroups::Piece> ExportOutput::pieces(const shard::Range& rows) const {
  const int64_t start = first_row + rows.start;
  auto pieces = groups.pieces({start, rows.length});
  for (RowGroups::Piece& piece : pieces) {
    piece.row -= start;
    piece.stored_row += stack_index * (fused_rows > 0 ? fused_rows : rule().out);
  }
  return pieces;
}

std::string ExportOutput::vector_name() const {
  if (is_named_whole) return base;
  if (is_bare) return rule().base();
  return fused_rows > 0 || stack_size > 0 ? base + ".bias" : rule().name;
}

int64_t ExportOutput::numbers_before() const {
  return stack_index * (fused_rows > 0 ? fused_rows : rule().in) + first_row;
}

std::vector<io::TensorSpec> ExportOutput::specs() const {
  const io::Dtype floating = file_type(dtype);
  if (!columns.empty()) {
    const auto count = static_cast<int64_t>(columns.size());
    std::vector<int64_t> sizes = {stack_size, rule().in};
    if (!rule().is_vector()) sizes.push_back(rule().out);
    sizes.back() *= count;
    return {{base, floating, std::move(sizes)}};
  }
  if (rule().is_vector() && !is_row) {
    std::vector<int64_t> sizes = {fused_rows > 0 ? fused_rows : rule().in};
    // A convolution's taps, which GGUF has as [channels, taps] and MLX as [channels, taps, 1].
    if (!rule().element_shape.empty()) sizes = {rule().in, 1, rule().array_size()};
    if (stack_size > 0) sizes.insert(sizes.begin(), stack_size);
    return {{vector_name(), floating, std::move(sizes)}};
  }
  const auto shape = [&](int64_t columns) {
    const int64_t rows = fused_rows > 0 ? fused_rows : std::max<int64_t>(rule().out, 1);
    std::vector<int64_t> sizes = {rows, columns};
    if (stack_size > 0) sizes.insert(sizes.begin(), stack_size);
    return sizes;
  };
  if (!scheme) return {{plain_name(), floating, shape(rule().in)}};
  if (format == FolderFormat::kCompressed) return compressed_specs();
  const io::Dtype scales = is_affine() ? file_type(scheme->scale_dtype) : io::Dtype::kU8;
  const int64_t groups = rule().in / scheme->group_size;
  std::vector<io::TensorSpec> specs = {
      {base + ".weight", io::Dtype::kU32, shape(rule().in * scheme->bits / kWordBits)},
      {base + ".scales", scales, shape(groups)}};
  if (is_affine()) specs.push_back({base + ".biases", scales, shape(groups)});
  return specs;
}

std::vector<io::TensorSpec> ExportOutput::compressed_specs() const {
  const int64_t rows = fused_rows > 0 ? fused_rows : rule().out;
  const int64_t groups = rule().in / scheme->group_size;
  std::vector<io::TensorSpec> specs = {
      {base + ".weight_packed", io::Dtype::kI32, {rows, rule().in * scheme->bits / kWordBits}},
      {base + ".weight_scale", file_type(scheme->scale_dtype), {rows, groups}},
      {base + ".weight_shape", io::Dtype::kI64, {2}}};
  if (has_zero_points()) {
    specs.push_back({base + ".weight_zero_point", io::Dtype::kI32, {rows / row_unit(), groups}});
  }
  return specs;
}

std::vector<ExportOutput> choose_outputs(const LoadPlan& plan, const ModelConfig& config,
                                         const ExportOptions& options) {
  return FormChooser(plan, config, options).choose();
}

nlohmann::json compressed_quantization_of(const std::vector<ExportOutput>& outputs,
                                          const ModelConfig& config) {
  const auto first = std::ranges::find_if(
      outputs, [](const ExportOutput& output) { return output.scheme.has_value(); });
  if (first == outputs.end()) return nullptr;
  std::vector<std::string> ignored = plain_linears(outputs, config);
  if (config.is_tied) ignored.push_back("lm_head");
  return {{"config_groups",
           {{"group_0",
             {{"input_activations", nullptr},
              {"output_activations", nullptr},
              {"targets", {"Linear"}},
              {"weights", compressed_form(*first)}}}}},
          {"format", "pack-quantized"},
          {"global_compression_ratio", nullptr},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"sparsity_config", nlohmann::json::object()},
          {"transform_config", nlohmann::json::object()},
          {"version", kCompressedTensors}};
}

nlohmann::json quantization_of(const std::vector<ExportOutput>& outputs) {
  std::map<nlohmann::json, size_t> counts;
  for (const ExportOutput& output : outputs) {
    if (output.scheme) ++counts[form_of(*output.scheme)];
  }
  if (counts.empty()) return nullptr;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  nlohmann::json quantization = most->first;
  for (const ExportOutput& output : outputs) {
    if (output.scheme && form_of(*output.scheme) != most->first) {
      quantization[output.base] = form_of(*output.scheme);
    }
  }
  return quantization;
}

}  // namespace weft::models
