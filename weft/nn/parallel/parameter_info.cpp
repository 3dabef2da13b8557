#include "weft/nn/parallel/parameter_info.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/attention/head_sinks.h"
#include "weft/nn/layers/layer_path.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/nn/parallel/cut_parameters.h"
#include "weft/nn/parallel/parallel_embedding.h"

namespace weft::nn {
namespace {

std::optional<shard::Layout> along(const shard::Layout& layout, int64_t dim) {
  shard::Layout moved = layout;
  moved.dim = dim;
  return moved;
}

// What a cut linear layer's parameter looks like: the outputs are rows of the weight, and B and the
// bias follow them; the inputs are its columns, and A follows those.
std::optional<shard::Layout> linear_layout(const LinearCut& cut, const std::string& own_name) {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  if (own_name == "weight") return along(cut.layout, by_rows ? 0 : 1);
  if (own_name == "lora_a") return by_rows ? std::nullopt : along(cut.layout, 1);
  return by_rows ? along(cut.layout, 0) : std::nullopt;
}

// Walks the tree with the cut of the layer around.
class Walk {
 public:
  Walk(const InplaceShards& inplace, std::vector<ParameterInfo>& found)
      : inplace_(inplace), found_(found) {}

  void visit(const torch::nn::Module& module, const std::string& path, const LinearCut* around) {
    const auto* holder = dynamic_cast<const LinearHolder*>(&module);
    if (holder != nullptr && holder->cut() != nullptr) around = holder->cut();
    const bool is_inner = dynamic_cast<const LinearLike*>(&module) != nullptr;
    for (const auto& item : module.named_parameters(false)) {
      if (!item.value().requires_grad() || !seen_.insert(item.value().unsafeGetTensorImpl()).second)
        continue;
      // A parallel layer's own bias is whole; the cut is its inner layer's.
      add(module, path, item.key(), item.value(), is_inner ? around : nullptr);
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), around);
    }
  }

 private:
  void add(const torch::nn::Module& module, const std::string& path, const std::string& own_name,
           const at::Tensor& tensor, const LinearCut* cut) {
    const std::string place = place_of(path);
    ParameterInfo info;
    info.name = place.empty() ? own_name : place + "." + own_name;
    info.tensor = tensor;
    info.cut =
        cut != nullptr
            ? linear_layout(*cut, own_name)
            : other_layout(module, path.empty() ? own_name : path + "." + own_name, own_name);
    info.sizes = tensor.sizes().vec();
    if (info.cut.has_value()) info.sizes[static_cast<size_t>(info.cut->dim)] = info.cut->size;
    found_.push_back(std::move(info));
  }

  std::optional<shard::Layout> other_layout(const torch::nn::Module& module,
                                            const std::string& path,
                                            const std::string& own_name) const {
    const auto inplace = inplace_.find(path);
    if (inplace != inplace_.end()) {
      if (inplace->second.kind != ParameterRule::Kind::kCut) return std::nullopt;
      return inplace->second.layout;
    }
    if (const auto* embedding = dynamic_cast<const ParallelEmbeddingImpl*>(&module)) {
      return embedding->layout();
    }
    if (const auto* cut = dynamic_cast<const CutParameters*>(&module)) {
      return cut->layout_of(own_name);
    }
    if (const auto* sinks = dynamic_cast<const HeadSinksImpl*>(&module)) return sinks->layout();
    const auto* norm = dynamic_cast<const ShardedRMSNormImpl*>(&module);
    if (norm == nullptr) return std::nullopt;
    core::check<core::ConfigError>(
        norm->layout().has_value(), "nn.describe_parameters: ", path,
        ": a ShardedRMSNorm does not know what other ranks hold; give its layout");
    return norm->layout();
  }

  const InplaceShards& inplace_;
  std::vector<ParameterInfo>& found_;
  std::unordered_set<const void*> seen_;
};

}  // namespace

std::vector<ParameterInfo> describe_parameters(const torch::nn::Module& module,
                                               const InplaceShards& inplace) {
  std::vector<ParameterInfo> found;
  Walk(inplace, found).visit(module, "", nullptr);
  return found;
}

int64_t held_bytes(const torch::nn::Module& module) {
  int64_t bytes = 0;
  std::unordered_set<const torch::nn::Module*> seen;
  for (const auto& each : module.modules()) {
    if (!seen.insert(each.get()).second) continue;
    for (const at::Tensor& part : each->parameters(false)) bytes += part.nbytes();
    for (const at::Tensor& part : each->buffers(false)) bytes += part.nbytes();
  }
  return bytes;
}

}  // namespace weft::nn
