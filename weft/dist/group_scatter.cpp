#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/dist/backends/group_handles.h"
#include "weft/dist/group.h"
#include "weft/dist/group_calls.h"
#include "weft/dist/group_tensors.h"

// Sums of which each rank keeps its own piece.

namespace weft::dist {
namespace {

// Elements of all ranks' pieces that are exchanged at once, which bounds the memory for them.
constexpr int64_t kExchanged = int64_t{1} << 20;

// What the pieces of `lengths` elements have from `start` on, `most` elements at the most.
std::vector<int64_t> lengths_from(const std::vector<int64_t>& lengths, int64_t start,
                                  int64_t most) {
  std::vector<int64_t> left;
  for (const int64_t length : lengths) left.push_back(std::clamp(length - start, int64_t{0}, most));
  return left;
}

// Each rank's run of `taken` elements, which begins `start` elements into its piece, end to end.
at::Tensor pack_runs(const at::Tensor& pieces, const std::vector<int64_t>& lengths, int64_t start,
                     const std::vector<int64_t>& taken) {
  std::vector<at::Tensor> runs;
  int64_t first = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    runs.push_back(pieces.narrow(0, std::min(first + start, first + lengths[r]), taken[r]));
    first += lengths[r];
  }
  return at::cat(runs);
}

}  // namespace

at::Tensor Group::scatter_sum(const at::Tensor& x, int64_t dim,
                              const std::vector<int64_t>& sizes) const {
  const auto own = static_cast<size_t>(rank_);
  std::vector<std::vector<at::Tensor>> pieces(1);
  for (const at::Tensor& piece : x.split_with_sizes(sizes, dim)) {
    pieces[0].push_back(piece.contiguous());
  }
  std::vector<at::Tensor> output = {at::empty(pieces[0][own].sizes(), x.options())};
  if (!capabilities(x).reduce_scatter) {
    std::vector<at::Tensor> flat;
    std::vector<int64_t> lengths;
    for (const at::Tensor& piece : pieces[0]) {
      flat.push_back(piece.view({-1}));
      lengths.push_back(piece.numel());
    }
    at::Tensor sum = output[0].view({-1});
    exchange_and_sum(sum, at::cat(flat), lengths);
    return output[0];
  }
  c10d::ReduceScatterOptions options;
  options.asyncOp = false;
  wait_for(monitor_.get(), OpKind::kReduceScatter,
           process_group()->reduce_scatter(output, pieces, options));
  return output[0];
}

// Writes this rank's piece of the sum of `pieces`, of `lengths` elements and end to end. Each rank
// sends every other rank that one's piece, which is half of what an all-reduce moves, and adds what
// it gets in rank order; half types are added in float32 and rounded once.
void Group::exchange_and_sum(at::Tensor& sum, const at::Tensor& pieces,
                             const std::vector<int64_t>& lengths) const {
  type_to_reduce_in(pieces.scalar_type(), ReduceOp::kSum, capabilities(pieces));
  const at::ScalarType sum_type = is_half(pieces.scalar_type()) ? at::kFloat : pieces.scalar_type();
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t most = std::max(kExchanged / size_, int64_t{1});
  for (int64_t start = 0; start < longest; start += most) {
    const std::vector<int64_t> taken = lengths_from(lengths, start, most);
    const at::Tensor theirs = exchange(pack_runs(pieces, lengths, start, taken), taken);
    const int64_t own = taken[static_cast<size_t>(rank_)];
    at::Tensor total = theirs.narrow(0, 0, own).to(sum_type);
    for (int64_t r = 1; r < size_; ++r) total.add_(theirs.narrow(0, r * own, own));
    if (own > 0) sum.narrow(0, start, own).copy_(total);
  }
}

// Sends rank r its run of `lengths[r]` elements of `packed`; returns what all ranks have sent to
// this one, in rank order.
at::Tensor Group::exchange(const at::Tensor& packed, std::vector<int64_t> lengths) const {
  const int64_t own = lengths[static_cast<size_t>(rank_)];
  const at::Tensor received = at::empty({own * size_}, packed.options());
  const auto type = type_to_move_as(packed.scalar_type(), capabilities(packed));
  at::Tensor output = type ? received.view(*type) : received;
  at::Tensor input = type ? packed.view(*type) : packed;
  std::vector<int64_t> output_lengths(static_cast<size_t>(size_), own);
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  wait_for(monitor_.get(), OpKind::kReduceScatter,
           process_group()->alltoall_base(output, input, output_lengths, lengths, options));
  return received;
}

}  // namespace weft::dist
