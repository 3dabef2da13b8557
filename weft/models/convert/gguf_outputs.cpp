#include "weft/models/convert/gguf_outputs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/convert/export_types.h"
#include "weft/models/decoder/weights/fused_rows.h"
#include "weft/models/decoder/weights/tiled_heads.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;

// What the tensors are, in the order of the plan.
class GgufChooser {
 public:
  GgufChooser(const LoadPlan& plan, const ModelConfig& config, std::optional<at::ScalarType> dtype)
      : plan_(plan), config_(config), dtype_(dtype), places_(part_places(config)) {}

  std::vector<GgufOutput> choose(bool pairs_rows) {
    for (const PlannedWeight& weight : plan_.weights()) add(weight, pairs_rows);
    return std::move(outputs_);
  }

 private:
  void add(const PlannedWeight& weight, bool pairs_rows) {
    const std::string& name = weight.rule.name;
    const size_t dot = name.rfind('.');
    const auto found = places_.find(name.substr(0, dot));
    check<ConfigError>(found != places_.end(), "models.export_gguf: ", core::quote(name),
                       " has no name in GGUF");
    const PartPlace& place = found->second;
    if (place.part == Part::kKeyValue) return add_apart(weight, place);
    const std::string suffix = name.substr(dot);
    GgufOutput output;
    const bool is_bare = is_bare_part(place.part);
    output.spec.name = gguf_name(config_, place) + (is_bare ? gguf_suffix(place.part) : suffix);
    output.type = type_of(weight, place.part);
    output.spec.dtype = file_type(output.type);
    output.place = place;
    output.is_matrix =
        suffix == ".weight" && !is_small(weight, place.part) && weight.rule.element_shape.empty();
    output.spec.shape = {weight.rule.out, weight.rule.in};
    if (weight.rule.is_vector() || place.part == Part::kSharedRouter) {
      output.spec.shape = {weight.rule.in};
    }
    if (!weight.rule.element_shape.empty()) {
      output.spec.shape.push_back(weight.rule.array_size());
    }
    const int64_t heads = pairs_rows ? heads_of(place) : 0;
    const double offset = is_norm_part(place.part) ? config_.norm_offset : 0;
    output.sources.push_back({.weight = &weight,
                              .expert = place.expert,
                              .paired_heads = heads,
                              .offset = offset,
                              .is_decay = place.part == Part::kDeltaDecayLog});
    order_heads(place.part, output);
    const FusedRow* fused = written_gguf_row(config_, place.part);
    const bool is_expert = is_expert_part(place.part);
    if (fused != nullptr) {
      const FusedPlace own = fused_place(config_, *fused, place.part);
      output.spec.name = filled_name(fused->gguf, place) + suffix;
      output.spec.shape[0] = own.num_rows;
      cut_groups(*fused, place.part, output);
      // One expert after the other.
      if (is_expert) output.sources[0].stored_row = place.expert * own.num_rows + own.first_row;
    }
    if (is_expert) {
      output.spec.shape.insert(output.spec.shape.begin(), config_.experts.num_experts);
      join(std::move(output), "the layer's other experts");
    } else if (fused != nullptr) {
      join(std::move(output), "rows of the same tensor");
    } else {
      outputs_.push_back(std::move(output));
    }
  }

  // The rows of each group by themselves, so that those of all parts can stand in turn.
  void cut_groups(const FusedRow& fused, Part part, GgufOutput& output) const {
    if (!fused.is_grouped) return;
    const GgufSource whole = output.sources.front();
    output.sources.clear();
    const int64_t first = fused_place(config_, fused, part).first_row;
    for (const auto& piece : row_groups(config_, fused).pieces({first, whole.weight->rule.out})) {
      GgufSource source = whole;
      source.rows = {piece.row - first, piece.length};
      source.stored_row = piece.stored_row;
      output.sources.push_back(source);
    }
  }

  // Value heads of gated delta nets in GGUF's order.
  void order_heads(Part part, GgufOutput& output) const {
    const TiledHeads heads = tiled_heads(config_, part);
    if (heads.is_plain()) return;
    const GgufSource whole = output.sources.front();
    if (part == Part::kDeltaOut) {
      output.sources.front().columns = heads.in_model();
      return;
    }
    output.sources.clear();
    for (const shard::Range& rows : heads.in_model()) {
      output.sources.push_back(whole);
      output.sources.back().rows = rows;
    }
  }

  // What makes each head's keys, transposed, and what makes its values are two tensors.
  void add_apart(const PlannedWeight& weight, const PartPlace& place) {
    const int64_t heads = config_.num_heads, rank = config_.latent.kv_rank;
    const int64_t keys = config_.head_dim - config_.rope_dims, values = config_.latent.value_dim;
    for (const bool is_of_keys : {true, false}) {
      GgufOutput& output = outputs_.emplace_back();
      output.spec.name =
          core::join("blk.", place.layer, ".attn_", is_of_keys ? "k" : "v", "_b.weight");
      output.type = type_of(weight, place.part);
      output.spec.dtype = file_type(output.type);
      output.place = place;
      output.is_matrix = true;
      output.spec.shape = {heads, is_of_keys ? rank : values, is_of_keys ? keys : rank};
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head * (keys + values);
        const shard::Range rows =
            is_of_keys ? shard::Range{first, keys} : shard::Range{first + keys, values};
        output.sources.push_back(
            {.weight = &weight, .expert = head, .rows = rows, .is_transposed = is_of_keys});
      }
    }
  }

  static bool is_small(const PlannedWeight& weight, Part part) {
    return weight.rule.is_vector() || part == Part::kRouter || part == Part::kSharedRouter;
  }

  // Routers and vectors take little and are kept exact.
  at::ScalarType type_of(const PlannedWeight& weight, Part part) const {
    if (is_small(weight, part)) return at::kFloat;
    if (dtype_) return *dtype_;
    return plain_type(weight.format.kind, plan_.recipe(weight, 0, 0).result.dtype());
  }

  int64_t heads_of(const PartPlace& place) const {
    if (!weight_row(config_, place).is_turned) return 0;
    const bool is_query = place.part == Part::kQuery || place.part == Part::kQueryNorm;
    return is_query ? config_.num_heads : config_.num_kv_heads;
  }

  // Adds a weight to the tensor that it is a part of; the first one makes it. The plan has them in
  // their order.
  void join(GgufOutput output, const char* others) {
    const auto [entry, is_first] = joined_.emplace(output.spec.name, outputs_.size());
    if (is_first) {
      outputs_.push_back(std::move(output));
      return;
    }
    GgufOutput& whole = outputs_[entry->second];
    check<ConfigError>(whole.type == output.type,
                       "models.export_gguf: ", core::quote(output.sources[0].weight->rule.name),
                       " is of another type than ", others,
                       ", which GGUF has in one tensor; write it with weft convert --dtype first");
    whole.sources.insert(whole.sources.end(), output.sources.begin(), output.sources.end());
    std::ranges::stable_sort(whole.sources, {}, &GgufSource::stored_row);
  }

  const LoadPlan& plan_;
  const ModelConfig& config_;
  std::optional<at::ScalarType> dtype_;
  std::map<std::string, PartPlace> places_;
  std::vector<GgufOutput> outputs_;
  std::map<std::string, size_t> joined_;
};

}  // namespace

shard::Range GgufSource::taken_rows() const {
  const WeightRule& rule = weight->rule;
  if (rows.length > 0) return rows;
  return {0, rule.is_vector() ? rule.in : rule.out};
}

int64_t GgufOutput::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : spec.shape) product *= size;
  return product;
}

std::vector<GgufOutput> choose_gguf_outputs(const LoadPlan& plan, const ModelConfig& config,
                                            std::optional<at::ScalarType> dtype) {
  return GgufChooser(plan, config, dtype).choose(family_info(config).has_paired_rows);
}

}  // namespace weft::models
