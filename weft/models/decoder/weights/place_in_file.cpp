#include "weft/models/decoder/weights/place_in_file.h"

#include <string>
#include <string_view>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/fused_rows.h"

namespace weft::models {
namespace {

class Finder {
 public:
  Finder(const ModelConfig& config, const io::TensorFile& file) : config_(config), file_(file) {}

  WeightRule find(const PartPlace& place) const {
    const WeightRow& row = weight_row(config_, place);
    WeightRule rule;
    rule.name = filled_name(row.model, place) + ".weight";
    rule.file_name = folder_name(file_, rule.name);
    rule.out = size_of(config_, row.shape.out);
    rule.in = size_of(config_, row.shape.in);
    if (file_.is_gguf()) rule.file_name = filled_name(row.gguf, place) + ".weight";
    if (row.shape.array != WeightDim::kNone) {
      rule.element_shape = {size_of(config_, row.shape.array)};
      if (!file_.is_gguf()) rule.element_shape.insert(rule.element_shape.begin(), 1);
    }
    if (is_bare_part(place.part)) find_bare(place, rule);
    if (row.is_of_expert() && !find_fused_expert(place, rule)) find_expert(place, rule);
    find_fused(place, rule);
    if (place.part == Part::kKeyValue) find_apart(place, rule);
    if (row.shape.out == WeightDim::kOne) find_one_row(rule);
    return rule;
  }

 private:
  bool is_stored(const std::string& base) const { return io::has_matrix(file_, base); }

  // The weight's rows of a tensor that holds those of others, too, unless each stands alone, as in
  // what weft has cut.
  void find_fused(const PartPlace& place, WeightRule& rule) const {
    const FusedRow* fused = fused_row(config_, place.part);
    if (fused == nullptr) return;
    const auto name = [&](std::string_view model, std::string_view gguf) {
      return filled_name(file_.is_gguf() ? gguf : model, place);
    };
    const WeightRow& first = weight_row(config_, {fused->parts.front(), place.layer});
    const std::string base = name(fused->model, fused->gguf);
    if (!is_stored(base) || is_stored(name(first.model, first.gguf))) return;
    const FusedPlace own = fused_place(config_, *fused, place.part);
    rule.file_name = base + ".weight";
    rule.stored_rows = own.num_rows;
    const RowGroups groups = row_groups(config_, *fused);
    if (groups.num_groups > 0) {
      rule.reorder.push_back({"ungroup", {groups.num_groups, groups.lengths}, {}, {}});
    }
    rule.reorder.push_back({"narrow", {int64_t{0}, own.first_row, rule.out}, {}, {}});
  }

  // Newer GGUF has what makes keys and what makes values apart, head by head.
  void find_apart(const PartPlace& place, WeightRule& rule) const {
    const std::string prefix = core::join("blk.", place.layer, ".attn_");
    if (!file_.is_gguf() || !is_stored(prefix + "k_b")) return;
    rule.sources = {prefix + "k_b.weight", prefix + "v_b.weight"};
    rule.reorder.push_back({"combine_latent_heads", {}, {}, {}});
  }

  // Folders have a parameter of the layer itself, without ".weight", and GGUF with its own ending.
  void find_bare(const PartPlace& place, WeightRule& rule) const {
    const WeightRow& row = weight_row(config_, place);
    const std::string bare = folder_name(file_, filled_name(row.model, place));
    if (file_.find(bare) != nullptr) rule.file_name = bare;
    if (file_.is_gguf()) rule.file_name = filled_name(row.gguf, place) + gguf_suffix(place.part);
  }

  // The expert's rows of Hugging Face's tensor of all of a layer's experts.
  bool find_fused_expert(const PartPlace& place, WeightRule& rule) const {
    const FusedRow* fused = fused_experts_row(config_, place.part);
    if (fused == nullptr || file_.is_gguf()) return false;
    const std::string base = folder_name(file_, filled_name(fused->model, place));
    if (!io::has_matrix(file_, base) || file_.find(base + ".weight") != nullptr) return false;
    const FusedPlace own = fused_place(config_, *fused, place.part);
    if (!has_oss_experts()) {
      check_plain_stack(base);
      // Matrices of bare names are transposed otherwise; these are taken as plain numbers.
      rule.sources = {base};
      rule.reorder.push_back({"select", {int64_t{0}, place.expert}, {}, {}});
      rule.reorder.push_back({"narrow", {int64_t{0}, own.first_row, rule.out}, {}, {}});
      return true;
    }
    rule.file_name = base + ".weight";
    rule.stack_size = config_.experts.num_experts;
    rule.stack_index = place.expert;
    if (fused->parts.size() == 1) return true;
    rule.stored_rows = own.num_rows;
    const auto count = static_cast<int64_t>(fused->parts.size());
    if (fused->is_interleaved)
      rule.reorder.push_back({"deinterleave", {int64_t{0}, count}, {}, {}});
    rule.reorder.push_back({"narrow", {int64_t{0}, own.first_row, rule.out}, {}, {}});
    return true;
  }

  bool has_oss_experts() const {
    const FamilyInfo* family = find_family_info(config_.family);
    return family != nullptr && family->experts.names == ExpertNames::kOss;
  }

  void check_plain_stack(const std::string& base) const {
    const io::TensorMeta* stack = file_.find(base);
    core::check<core::ConfigError>(
        stack != nullptr && core::is_floating(stack->dtype), file_.path(), ": experts ",
        core::quote(base), " are ", stack == nullptr ? "packed" : io::info(stack->dtype).name,
        ", which is not supported for experts in one tensor, expected F32, F16 or BF16; take the "
        "checkpoint that was not quantized");
  }

  // A matrix of one row is a vector in GGUF.
  void find_one_row(WeightRule& rule) const {
    const io::TensorMeta* tensor = file_.find(rule.file_name);
    if (tensor != nullptr && tensor->shape.size() == 1) rule.out = 0;
  }

  // Gates and ups of GGUF's in one tensor.
  bool find_fused_stack(const PartPlace& place, WeightRule& rule) const {
    const FusedRow* fused = fused_experts_row(config_, place.part);
    if (!file_.is_gguf() || fused == nullptr || fused->gguf.empty()) return false;
    const std::string base = filled_name(fused->gguf, place);
    if (!is_stored(base)) return false;
    const FusedPlace own = fused_place(config_, *fused, place.part);
    rule.file_name = base + ".weight";
    rule.stored_rows = own.num_rows;
    rule.stack_size = config_.experts.num_experts;
    rule.stack_index = place.expert;
    rule.reorder.push_back({"narrow", {int64_t{0}, own.first_row, rule.out}, {}, {}});
    return true;
  }

  // Who quantizes Gemma 4's experts takes them apart: they stand beside the router then, as the
  // tensor of all does, and within it where weft wrote them.
  std::string alone_in_folder(const WeightRule& rule) const {
    constexpr std::string_view kWithin = ".router.experts.", kBeside = ".experts.";
    const size_t at = rule.file_name.find(kWithin);
    if (at == std::string::npos) return rule.file_name;
    std::string beside = rule.file_name;
    beside.replace(at, kWithin.size(), kBeside);
    return is_stored(beside.substr(0, beside.rfind('.'))) ? beside : rule.file_name;
  }

  // Experts are stacked in GGUF and in MLX's folders, single in Hugging Face's and in old GGUF.
  void find_expert(const PartPlace& place, WeightRule& rule) const {
    if (find_fused_stack(place, rule)) return;
    const std::string stacked =
        (file_.is_gguf() ? gguf_name(config_, place)
                         : folder_name(file_, mlx_experts_name(config_, place))) +
        ".weight";
    const std::string alone =
        file_.is_gguf() ? old_gguf_expert_name(config_, place) + ".weight" : alone_in_folder(rule);
    if (file_.find(stacked) == nullptr && (!file_.is_gguf() || file_.find(alone) != nullptr)) {
      rule.file_name = alone;
      return;
    }
    rule.file_name = stacked;
    rule.stack_size = config_.experts.num_experts;
    rule.stack_index = place.expert;
  }

  const ModelConfig& config_;
  const io::TensorFile& file_;
};

}  // namespace

WeightRule place_in_file(const ModelConfig& config, const io::TensorFile& file,
                         const PartPlace& place) {
  return Finder(config, file).find(place);
}

}  // namespace weft::models
