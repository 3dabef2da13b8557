#include "weft/models/convert/fuse_experts.h"

#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/weight_table.h"

namespace weft::models {
namespace {

// Collects the outputs, of which those that others have as columns of theirs are left out.
class ExpertFuser {
 public:
  ExpertFuser(const ModelConfig& config, size_t num_outputs) : config_(config) {
    // Pointers to them are kept.
    outputs_.reserve(num_outputs);
  }

  void keep(ExportOutput output) { outputs_.push_back(std::move(output)); }

  void add(ExportOutput output, const PartPlace& place, const FusedRow& fused) {
    output.base = filled_name(fused.model, place);
    if (output.rule().is_vector()) output.base += "_bias";
    output.is_named_whole = true;
    output.stack_size = config_.experts.num_experts;
    output.stack_index = place.expert;
    const auto first = firsts_.find(output.base);
    core::check<core::ConfigError>(first == firsts_.end() || first->second->is_like(output),
                                   "models.export: ", core::quote(output.rule().name),
                                   " is not stored as others of ", core::quote(output.base),
                                   ", with which it is one tensor; write all weights in one type");
    if (has_transposed_experts(config_)) {
      ExportOutput*& own = experts_[{output.base, place.expert}];
      if (own != nullptr) return own->columns.push_back(output.weight);
      output.columns = {output.weight};
      own = &outputs_.emplace_back(std::move(output));
    } else {
      const FusedPlace rows = fused_place(config_, fused, place.part);
      output.first_row = rows.first_row;
      output.fused_rows = rows.num_rows;
      outputs_.push_back(std::move(output));
    }
    firsts_.emplace(outputs_.back().base, &outputs_.back());
  }

  std::vector<ExportOutput> take() { return std::move(outputs_); }

 private:
  const ModelConfig& config_;
  std::vector<ExportOutput> outputs_;
  // The first output of each tensor, and of each expert in it.
  std::map<std::string, const ExportOutput*> firsts_;
  std::map<std::pair<std::string, int64_t>, ExportOutput*> experts_;
};

}  // namespace

bool has_transposed_experts(const ModelConfig& config) {
  return family_info(config).experts.names == ExpertNames::kOss;
}

void fuse_experts(const ModelConfig& config, const std::map<std::string, PartPlace>& places,
                  std::vector<ExportOutput>& outputs) {
  ExpertFuser fuser(config, outputs.size());
  for (ExportOutput& output : outputs) {
    const std::string& name = output.rule().name;
    const auto place = places.find(name.substr(0, name.rfind('.')));
    const FusedRow* fused = place == places.end() || !is_expert_part(place->second.part)
                                ? nullptr
                                : fused_experts_row(config, place->second.part);
    if (fused == nullptr) {
      fuser.keep(std::move(output));
    } else {
      fuser.add(std::move(output), place->second, *fused);
    }
  }
  outputs = fuser.take();
}

}  // namespace weft::models
