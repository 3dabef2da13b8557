#include "weft/nn/linear/adapt.h"

#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/layer_path.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/lora.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/nn/parallel/init.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using Exchange = std::function<std::shared_ptr<LinearLike>(const HeldLinear&)>;

// A layer that is itself the module has no path.
std::string path_text(const std::string& path) { return path.empty() ? "the layer" : path; }

void refuse_plain_linears(torch::nn::Module& module, const char* where,
                          const PathPredicate& is_meant) {
  const auto refuse = [&](const std::string& path, const torch::nn::Module& found) {
    const bool is_plain = dynamic_cast<const torch::nn::LinearImpl*>(&found) != nullptr;
    check<ConfigError>(!is_plain || !is_meant(path), where, ": ", path_text(path),
                       " is a torch::nn::Linear, whose place cannot take another layer; make the "
                       "member a weft::nn::Linear");
  };
  refuse("", module);
  for (const auto& item : module.named_modules("", false)) refuse(item.key(), *item.value());
}

std::string paths_text(const std::vector<HeldLinear>& linears) {
  constexpr size_t kShown = 12;
  std::vector<std::string> paths;
  for (const HeldLinear& each : linears) paths.push_back(path_text(each.path));
  const bool is_long = paths.size() > kShown;
  if (is_long) paths.resize(kShown);
  return core::list_text(paths) + (is_long ? ", …" : "");
}

// A tied embedding and head share one inner linear, and keep sharing one.
int64_t exchange_all(const std::vector<HeldLinear>& linears, const Exchange& exchange) {
  std::map<LinearLike*, std::shared_ptr<LinearLike>> done;
  std::vector<std::shared_ptr<LinearLike>> kept_alive;
  int64_t count = 0;
  for (const HeldLinear& each : linears) {
    const auto former = each.holder->inner();
    auto known = done.find(former.get());
    if (known == done.end()) {
      kept_alive.push_back(former);
      known = done.emplace(former.get(), exchange(each)).first;
      ++count;
    }
    if (known->second != former) each.holder->set_inner(known->second);
  }
  return count;
}

bool cuts_quant_groups(const LinearCut& cut, int64_t group_size) {
  return cut.layout.common_run(group_size) != group_size;
}

// Quant groups that lie on two ranks take their scale from both: the whole is put together again,
// a few rows at a time, quantized, and cut.
quant::QuantizedMatrix quantize_across(const at::Tensor& weight, const LinearCut& cut,
                                       const quant::Scheme& scheme) {
  constexpr int64_t kChunkElements = 1 << 22;
  const int64_t rows_at_once = std::max<int64_t>(1, kChunkElements / cut.layout.size);
  std::vector<quant::QuantizedMatrix> chunks;
  for (int64_t row = 0; row < weight.size(0); row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, weight.size(0) - row);
    const at::Tensor whole = gather_whole(weight.narrow(0, row, rows).contiguous(), cut);
    chunks.push_back(
        quant::select(quant::quantize(whole, scheme), 1, cut.layout.of(cut.group.rank())));
  }
  return quant::concatenate(chunks, 0);
}

std::shared_ptr<LinearLike> quantized(const LinearLike& linear, const LinearCut* cut,
                                      const quant::Scheme& scheme) {
  const at::Tensor weight = linear.dense_weight();
  const at::Tensor bias = linear.bias_or_undefined();
  const bool by_columns = cut != nullptr && cut->kind == ShardKind::kShardedToAll;
  auto packed = by_columns && cuts_quant_groups(*cut, scheme.group_size)
                    ? quantize_across(weight, *cut, scheme)
                    : quant::quantize(weight, scheme);
  return std::make_shared<QuantizedLinearImpl>(
      std::move(packed), bias.defined() ? bias.detach().clone() : at::Tensor(), scheme.group_size);
}

int64_t whole_columns(const HeldLinear& held) {
  const LinearCut* cut = held.holder->cut();
  return cut != nullptr && cut->kind == ShardKind::kShardedToAll
             ? cut->layout.size
             : held.holder->inner()->in_features();
}

std::shared_ptr<LinearLike> exchange_quantized(const HeldLinear& held,
                                               const quant::Scheme& scheme) {
  const auto inner = held.holder->inner();
  const auto lora = std::dynamic_pointer_cast<LoraLinearImpl>(inner);
  const auto linear = lora != nullptr ? lora->base() : inner;
  check<ConfigError>(std::dynamic_pointer_cast<QuantizedLinearImpl>(linear) == nullptr,
                     "nn.quantize: ", path_text(held.path),
                     " is quantized already; leave it out by predicate");
  const int64_t columns = whole_columns(held);
  check<ConfigError>(scheme.group_size >= 1 && columns % scheme.group_size == 0,
                     "nn.quantize: ", path_text(held.path), ": ", columns,
                     " input features, expected a multiple of the group "
                     "size ",
                     scheme.group_size, "; use another or leave it out by predicate");
  const auto result = quantized(*linear, held.holder->cut(), scheme);
  if (lora == nullptr) return result;
  lora->set_base(result);
  return lora;
}

// FNV-1a: layers get different numbers from one seed.
uint64_t seed_for(uint64_t seed, const std::string& path) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
  for (const unsigned char c : path) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

std::shared_ptr<LinearLike> with_lora(const HeldLinear& held, const LoraOptions& options) {
  const auto inner = held.holder->inner();
  check<ConfigError>(std::dynamic_pointer_cast<LoraLinearImpl>(inner) == nullptr,
                     "nn.apply_lora: ", path_text(held.path),
                     " has an adapter already; name other targets");
  const LinearCut* cut = held.holder->cut();
  const int64_t columns = whole_columns(held);
  const bool by_columns = columns != inner->in_features();
  const std::vector<shard::Range> all = {{0, columns}};
  const auto& own = by_columns ? cut->layout.of(cut->group.rank()) : all;
  const LinearCut* shared = held.holder->adapter_cut();
  const ShardSpec spec{{options.rank, columns}, 1, own};
  const auto a = make_shard(Init::linear_default(), spec, seed_for(options.seed, held.path));
  const auto b = at::zeros({inner->out_features(), options.rank}, at::TensorOptions(at::kFloat));
  auto lora = std::make_shared<LoraLinearImpl>(
      inner, a.set_requires_grad(true), b.set_requires_grad(true),
      options.alpha / static_cast<double>(options.rank),
      shared == nullptr ? std::nullopt : std::optional<LinearCut>(*shared));
  lora->set_dropout({options.dropout, seed_for(options.seed, held.path), 0});
  return lora;
}

std::vector<LoraLinearImpl*> adapters_of(torch::nn::Module& module) {
  std::vector<LoraLinearImpl*> adapters;
  for (const HeldLinear& held : find_linears(module)) {
    auto* lora = dynamic_cast<LoraLinearImpl*>(held.holder->inner().get());
    if (lora != nullptr) adapters.push_back(lora);
  }
  return adapters;
}

}  // namespace

bool is_lora_target(const std::string& path, const std::string& target) {
  return path == target || path.ends_with("." + target);
}

std::vector<HeldLinear> find_linears(torch::nn::Module& module) {
  std::vector<HeldLinear> found;
  const auto add = [&](const std::string& path, torch::nn::Module& each) {
    auto* holder = dynamic_cast<LinearHolder*>(&each);
    if (holder != nullptr && holder->inner() != nullptr) found.push_back({path, holder});
  };
  add("", module);
  for (const auto& item : module.named_modules("", false)) {
    add(place_of(item.key()), *item.value());
  }
  return found;
}

int64_t quantize(torch::nn::Module& module, const quant::Scheme& scheme,
                 const PathPredicate& predicate) {
  quant::check_scheme(scheme, "nn.quantize");
  const PathPredicate is_meant = predicate ? predicate : [](const std::string&) { return true; };
  refuse_plain_linears(module, "nn.quantize", is_meant);
  const std::vector<HeldLinear> all = find_linears(module);
  std::vector<HeldLinear> meant;
  std::copy_if(all.begin(), all.end(), std::back_inserter(meant),
               [&](const HeldLinear& held) { return is_meant(held.path); });
  check<ConfigError>(!meant.empty(), "nn.quantize: no layer to quantize; there are ",
                     paths_text(all));
  return exchange_all(meant,
                      [&](const HeldLinear& held) { return exchange_quantized(held, scheme); });
}

int64_t apply_lora(torch::nn::Module& module, const std::vector<std::string>& targets,
                   const LoraOptions& options) {
  check<ConfigError>(options.rank >= 1, "nn.apply_lora: rank ", options.rank,
                     ", expected at least 1");
  check<ConfigError>(options.dropout >= 0 && options.dropout < 1, "nn.apply_lora: dropout ",
                     options.dropout, ", expected 0 or more, below 1");
  const auto is_meant = [&](const std::string& path) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const std::string& target) { return is_lora_target(path, target); });
  };
  refuse_plain_linears(module, "nn.apply_lora", is_meant);
  const std::vector<HeldLinear> all = find_linears(module);
  for (const std::string& target : targets) {
    const bool is_found = std::any_of(all.begin(), all.end(), [&](const HeldLinear& held) {
      return is_lora_target(held.path, target);
    });
    check<ConfigError>(is_found || options.is_part, "nn.apply_lora: no layer ", core::quote(target),
                       "; there are ", paths_text(all));
  }
  std::vector<HeldLinear> meant;
  std::copy_if(all.begin(), all.end(), std::back_inserter(meant),
               [&](const HeldLinear& held) { return is_meant(held.path); });
  for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(false);
  for (LoraLinearImpl* adapter : adapters_of(module)) {
    adapter->lora_a.set_requires_grad(true);
    adapter->lora_b.set_requires_grad(true);
  }
  return exchange_all(meant, [&](const HeldLinear& held) { return with_lora(held, options); });
}

int64_t merge_lora(torch::nn::Module& module) {
  const auto adapters = adapters_of(module);
  for (LoraLinearImpl* adapter : adapters) adapter->merge();
  return static_cast<int64_t>(adapters.size());
}

int64_t unmerge_lora(torch::nn::Module& module) {
  const auto adapters = adapters_of(module);
  for (LoraLinearImpl* adapter : adapters) adapter->unmerge();
  return static_cast<int64_t>(adapters.size());
}

int64_t fuse_lora(torch::nn::Module& module) {
  std::vector<HeldLinear> adapted;
  for (const HeldLinear& held : find_linears(module)) {
    if (dynamic_cast<LoraLinearImpl*>(held.holder->inner().get()) != nullptr) {
      adapted.push_back(held);
    }
  }
  return exchange_all(adapted, [](const HeldLinear& held) -> std::shared_ptr<LinearLike> {
    const auto inner = held.holder->inner();
    const at::Tensor bias = inner->bias_or_undefined();
    return std::make_shared<DenseLinearImpl>(inner->dense_weight(),
                                             bias.defined() ? bias.clone() : at::Tensor());
  });
}

}  // namespace weft::nn
