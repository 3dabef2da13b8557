#include "weft/nn/linear/equal_wholes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/core/error.h"
#include "weft/core/hash.h"

namespace weft::nn {
namespace {

using core::check;
using core::CommError;

// All ranks' numbers, one row a rank.
class Gathered {
 public:
  Gathered(const std::vector<uint64_t>& own, const dist::Group& group)
      : columns_(static_cast<int64_t>(own.size())) {
    at::Tensor row = at::empty({1, columns_}, at::TensorOptions(at::kLong));
    std::copy(own.begin(), own.end(), row.mutable_data_ptr<int64_t>());
    const std::vector<int64_t> ones(static_cast<size_t>(group.size()), 1);
    all_ = group.all_gather(row, 0, ones).contiguous();
  }

  /// The first rank whose number in that column is not rank 0's.
  std::optional<int64_t> first_other(int64_t column) const {
    const auto* numbers = all_.const_data_ptr<int64_t>();
    for (int64_t rank = 1; rank < all_.size(0); ++rank) {
      if (numbers[rank * columns_ + column] != numbers[column]) return rank;
    }
    return std::nullopt;
  }

 private:
  int64_t columns_;
  at::Tensor all_;
};

uint64_t hash_text(const std::string& text, uint64_t hash) {
  return core::hash_bytes(std::as_bytes(std::span(text)), hash);
}

uint64_t hash_values(const at::Tensor& x, uint64_t hash) {
  if (x.is_meta()) return hash;
  const at::Tensor held = x.detach().cpu().contiguous();
  return core::hash_bytes({static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes()},
                          hash);
}

std::string form_text(const WholeTensor& whole) {
  return core::join(whole.name, " ", core::list_text(whole.tensor.sizes()), " ",
                    whole.tensor.scalar_type(), " ", whole.cut, "\n");
}

// The slow way, taken once it is known that something differs: what it is.
[[noreturn]] void fail_naming_the_difference(const std::vector<WholeTensor>& wholes, uint64_t form,
                                             const std::string& where, const dist::Group& group) {
  const auto other_form = Gathered({form}, group).first_other(0);
  check<CommError>(!other_form, where, ": rank ", other_form.value_or(0), " of group ",
                   group.name(),
                   " cuts other tensors than rank 0, or cuts them in another way, expected the "
                   "same on all ranks");
  std::vector<uint64_t> values;
  for (const WholeTensor& whole : wholes) {
    values.push_back(hash_values(whole.tensor, core::kHashOfNothing));
  }
  const Gathered all(values, group);
  int64_t column = 0;
  while (!all.first_other(column)) ++column;
  core::fail<CommError>(where, ": rank ", *all.first_other(column), " of group ", group.name(),
                        " has another ", wholes[static_cast<size_t>(column)].name,
                        " than rank 0, expected one whole on all ranks; make it after one "
                        "at::manual_seed or from one file, and cut it once");
}

}  // namespace

std::string layout_text(const shard::Layout& layout) {
  std::string text = core::join("dim ", layout.dim);
  for (const auto& ranges : layout.ranges) {
    text += ";";
    for (const shard::Range& range : ranges)
      text += core::join(" ", range.start, "+", range.length);
  }
  return text;
}

std::vector<WholeTensor> wholes_of(const LinearLike& linear, const std::string& cut) {
  std::vector<WholeTensor> wholes;
  for (const auto& item : linear.named_parameters()) {
    wholes.push_back({item.key(), item.value(), cut});
  }
  for (const auto& item : linear.named_buffers()) {
    wholes.push_back({item.key(), item.value(), cut});
  }
  return wholes;
}

void check_equal_wholes(const std::vector<WholeTensor>& wholes, const std::string& where,
                        const dist::Group& group) {
  if (group.size() == 1) return;
  uint64_t form = core::kHashOfNothing;
  for (const WholeTensor& whole : wholes) form = hash_text(form_text(whole), form);
  uint64_t all = form;
  for (const WholeTensor& whole : wholes) all = hash_values(whole.tensor, all);
  if (!Gathered({all}, group).first_other(0)) return;
  fail_naming_the_difference(wholes, form, where, group);
}

}  // namespace weft::nn
