#include "weft/nn/parallel/shard_inplace.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/equal_wholes.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;
using RuleKind = ParameterRule::Kind;

constexpr const char* kShardInplace = "nn.shard_inplace: ";

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

std::string folder_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot + 1);
}

InplaceShard planned(const std::string& path, const at::Tensor& whole, const ParameterRule& rule,
                     int64_t n) {
  InplaceShard shard{rule.kind, {}, whole.requires_grad()};
  if (rule.kind != RuleKind::kCut) return shard;
  shard::Split split = rule.split;
  const std::string where = core::join(kShardInplace, path, " ", core::list_text(whole.sizes()));
  check<ShapeError>(split.dim >= -whole.dim() && split.dim < whole.dim(), where, ": dim ",
                    split.dim, ", expected ", -whole.dim(), " to ", whole.dim() - 1);
  if (split.dim < 0) split.dim += whole.dim();
  shard.layout =
      shard::make_layout(split, whole.size(split.dim), n, core::join(where, ", dim ", split.dim));
  return shard;
}

// A bias that every rank adds to its part of a sum is in the sum once per rank.
void refuse_repeated_bias(const std::map<std::string, at::Tensor>& tensors,
                          const InplaceShards& shards) {
  for (const auto& [path, shard] : shards) {
    const std::string bias = core::join(folder_of(path), "bias");
    const bool is_weight =
        shard.kind == RuleKind::kCut && path == core::join(folder_of(path), "weight");
    const bool is_repeated = is_weight && tensors.contains(bias) && !shards.contains(bias);
    check<ConfigError>(!is_repeated, kShardInplace, bias, " would be added once per rank: ", path,
                       " is cut along dim ", shard.layout.dim, " over ", shard.layout.num_ranks(),
                       " ranks and the bias is kept whole; give it first_rank() where outputs are "
                       "summed, or cut it with the outputs");
  }
}

std::vector<std::string> parallel_prefixes(const torch::nn::Module& module) {
  std::vector<std::string> prefixes;
  for (const auto& item : module.named_modules("", false)) {
    if (dynamic_cast<const ParallelLinearImpl*>(item.value().get()) == nullptr) continue;
    prefixes.push_back(core::join(item.key(), "."));
  }
  return prefixes;
}

void replace(at::Tensor tensor, const at::Tensor& value, bool requires_grad) {
  tensor.mutable_grad() = at::Tensor();
  tensor.set_data(value);
  if (tensor.is_leaf() && tensor.is_floating_point()) tensor.set_requires_grad(requires_grad);
}

std::vector<WholeTensor> wholes_of(const std::map<std::string, at::Tensor>& tensors,
                                   const InplaceShards& shards) {
  std::vector<WholeTensor> wholes;
  for (const auto& [path, shard] : shards) {
    wholes.push_back({path, tensors.at(path), layout_text(shard.layout)});
  }
  return wholes;
}

LinearCut cut_of(const InplaceShard& shard, const dist::Group& group) {
  return {ShardKind::kAllToSharded, shard.layout, group};
}

// Parameters of this process that are cut in place, and over which groups. The shards of zeros or
// ones are equal on all ranks, so that comparing wholes does not tell them from a whole. Groups are
// not kept alive for this; a group of one cuts nothing.
class CutTensors {
 public:
  bool holds(const at::Tensor& tensor, const dist::Group& group) {
    const std::lock_guard lock(mutex_);
    const auto found = cuts_.find(tensor.unsafeGetTensorImpl());
    return found != cuts_.end() && !found->second.tensor.expired() &&
           found->second.groups.contains(group.process_group().get());
  }
  void add(const at::Tensor& tensor, const dist::Group& group) {
    if (group.size() == 1) return;
    const std::lock_guard lock(mutex_);
    std::erase_if(cuts_, [](const auto& item) { return item.second.tensor.expired(); });
    Cut& cut = cuts_.try_emplace(tensor.unsafeGetTensorImpl(), tensor).first->second;
    cut.groups.insert(group.process_group().get());
  }
  void remove(const at::Tensor& tensor, const dist::Group& group) {
    const std::lock_guard lock(mutex_);
    const auto found = cuts_.find(tensor.unsafeGetTensorImpl());
    if (found != cuts_.end()) found->second.groups.erase(group.process_group().get());
  }

 private:
  struct Cut {
    explicit Cut(const at::Tensor& cut_tensor) : tensor(cut_tensor.getIntrusivePtr()) {}
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    std::set<const void*> groups;
  };

  std::mutex mutex_;
  std::map<at::TensorImpl*, Cut> cuts_;
};

CutTensors& cut_tensors() {
  static CutTensors cut_tensors;
  return cut_tensors;
}

void refuse_second_cut(const std::string& path, const at::Tensor& tensor,
                       const dist::Group& group) {
  check<ConfigError>(!cut_tensors().holds(tensor, group), kShardInplace, path, " ",
                     core::list_text(tensor.sizes()), " is cut already over group ", group.name(),
                     " of ", group.size(), " ranks; unshard_inplace it first");
}

}  // namespace

InplaceShards shard_inplace(torch::nn::Module& module, const ShardRule& rule,
                            const dist::Group& group) {
  const auto tensors = named_tensors(module);
  const auto prefixes = parallel_prefixes(module);
  InplaceShards shards;
  for (const auto& item : tensors) {
    const auto& path = item.first;
    const ParameterRule wanted = item.second.defined() ? rule(path, item.second) : ParameterRule();
    if (wanted.kind == RuleKind::kKeep) continue;
    const bool is_parallel = std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) {
      return path.starts_with(prefix);
    });
    check<ConfigError>(!is_parallel, kShardInplace, path,
                       " is part of a parallel layer and cut already; keep() it");
    refuse_second_cut(path, item.second, group);
    shards[path] = planned(path, item.second, wanted, group.size());
  }
  refuse_repeated_bias(tensors, shards);
  check_equal_wholes(wholes_of(tensors, shards), "nn.shard_inplace", group);
  // One tensor may have several paths (tied weights); it is cut once.
  std::map<at::TensorImpl*, std::string> done;
  for (const auto& [path, shard] : shards) {
    const at::Tensor& whole = tensors.at(path);
    if (!done.emplace(whole.unsafeGetTensorImpl(), path).second) continue;
    cut_tensors().add(whole, group);
    if (shard.kind == RuleKind::kCut) {
      replace(whole, own_part(whole, cut_of(shard, group)), shard.requires_grad);
    } else if (group.rank() != 0) {
      replace(whole, at::zeros_like(whole.detach()), false);
    }
  }
  return shards;
}

ShardRule shard_rule(std::string_view sharding, int64_t segments) {
  core::check<core::ShapeError>(segments >= 1, kShardInplace, "segments ", segments,
                                ", expected at least 1");
  const bool by_rows = shard_kind_of(sharding) == ShardKind::kAllToSharded;
  return [=](const std::string& path, const at::Tensor& whole) {
    if (whole.dim() == 0) return ParameterRule::keep();
    if (!by_rows && path.ends_with("bias")) return ParameterRule::first_rank();
    const int64_t dim = by_rows ? std::max<int64_t>(whole.dim() - 2, 0) : whole.dim() - 1;
    core::check<core::ShapeError>(whole.size(dim) % segments == 0, kShardInplace, path, " ",
                                  core::list_text(whole.sizes()), ": dim ", dim, " in ", segments,
                                  " equal segments, expected a multiple");
    const std::vector<int64_t> parts(static_cast<size_t>(segments), whole.size(dim) / segments);
    return ParameterRule::cut(dim, parts);
  };
}

InplaceShards shard_inplace(torch::nn::Module& module, std::string_view sharding,
                            const dist::Group& group, int64_t segments) {
  return shard_inplace(module, shard_rule(sharding, segments), group);
}

void unshard_inplace(torch::nn::Module& module, const InplaceShards& shards,
                     const dist::Group& group) {
  const auto tensors = named_tensors(module);
  std::map<at::TensorImpl*, std::string> done;
  for (const auto& [path, shard] : shards) {
    const auto found = tensors.find(path);
    check<ConfigError>(found != tensors.end(), "nn.unshard_inplace: ", path,
                       " is no parameter of this module; give the module that was cut");
    const at::Tensor& part = found->second;
    if (!done.emplace(part.unsafeGetTensorImpl(), path).second) continue;
    cut_tensors().remove(part, group);
    if (shard.kind == RuleKind::kCut) {
      replace(part, gather_whole(part, cut_of(shard, group)), shard.requires_grad);
    } else {
      at::Tensor whole = part.detach().clone();
      group.broadcast(whole, 0);
      replace(part, whole, shard.requires_grad);
    }
  }
}

}  // namespace weft::nn
