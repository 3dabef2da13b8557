#include "weft/nn/adapters/attach_lora.h"

#include <algorithm>
#include <memory>

#include "weft/core/error.h"
#include "weft/nn/adapters/adapted_linear.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/lora.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;

bool is_cut(const HeldLinear& held, ShardKind kind) {
  const LinearCut* const cut = held.holder->cut();
  return cut != nullptr && cut->kind == kind;
}

// This rank's part. By output features A is whole and B cut by rows, by input features A is cut by
// columns, before the sum over ranks, and B whole.
LowRank own_of(const HeldLinear& held, const LoraFactors& whole) {
  const auto inner = held.holder->inner();
  const LinearCut* const cut = held.holder->cut();
  const bool by_rows = is_cut(held, ShardKind::kAllToSharded);
  const bool by_columns = is_cut(held, ShardKind::kShardedToAll);
  const int64_t rows = by_rows ? cut->layout.size : inner->out_features();
  const int64_t columns = by_columns ? cut->layout.size : inner->in_features();
  check<core::ShapeError>(whole.a.dim() == 2 && whole.b.dim() == 2 && whole.a.size(1) == columns &&
                              whole.b.size(0) == rows && whole.a.size(0) == whole.b.size(1),
                          "nn.attach_lora: ", held.path, ": A ", core::list_text(whole.a.sizes()),
                          " and B ", core::list_text(whole.b.sizes()), ", expected [r, ", columns,
                          "] and [", rows, ", r]");
  return {by_columns ? own_part(whole.a, *cut) : whole.a,
          by_rows ? own_part(whole.b, *cut) : whole.b, whole.scale};
}

// What takes adapters at a place.
std::shared_ptr<AdaptedLinearImpl> adapted(const HeldLinear& held, int64_t number) {
  const auto inner = held.holder->inner();
  auto found = std::dynamic_pointer_cast<AdaptedLinearImpl>(inner);
  const bool is_taken = found != nullptr ? found->find(number) != nullptr
                                         : dynamic_cast<LoraLinearImpl*>(inner.get()) != nullptr;
  check<ConfigError>(!is_taken, "nn.attach_lora: ", held.path, " has an adapter already");
  if (found != nullptr) return found;
  found = std::make_shared<AdaptedLinearImpl>(inner);
  held.holder->set_inner(found);
  return found;
}

std::string places_text(const std::vector<HeldLinear>& linears) {
  constexpr size_t kShown = 12;
  std::vector<std::string> paths;
  for (const HeldLinear& each : linears) {
    if (paths.size() < kShown) paths.push_back(each.path);
  }
  return core::list_text(paths) + (linears.size() > kShown ? ", …" : "");
}

}  // namespace

void attach_lora(torch::nn::Module& module, const std::vector<std::string>& places,
                 const std::function<LoraFactors(const std::string& place)>& factors,
                 int64_t number) {
  const std::vector<HeldLinear> all = find_linears(module);
  std::vector<HeldLinear> meant;
  for (const std::string& place : places) {
    const auto found = std::ranges::find(all, place, &HeldLinear::path);
    check<ConfigError>(found != all.end(), "nn.attach_lora: no layer ", core::quote(place),
                       "; there are ", places_text(all));
    meant.push_back(*found);
  }
  for (const HeldLinear& held : meant) {
    const LowRank own = own_of(held, factors(held.path));
    adapted(held, number)->add(number, own);
  }
}

}  // namespace weft::nn
