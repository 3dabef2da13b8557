#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/group.h"
#include "weft/dist/hierarchical/places.h"

namespace weft::dist {

/// What the ranks of a group on several hosts talk through.
struct HierarchicalParts {
  HostPlaces places;
  /// Among the ranks of this host; null where this one is alone.
  BlockTransport* inside = nullptr;
  /// The ranks with this one's index on all hosts, in the order of the hosts. Where the hosts have
  /// different numbers of ranks only the first ones of each have such a group.
  Group between;
};

/// Collectives that go through shared memory inside each host and cross the network once per host.
/// All ranks get the same bits as long as the group between the hosts gives them to its ranks. A
/// call that fails makes the ranks of this host fail, too.
class HierarchicalCollectives : public BlockCollectives {
 public:
  explicit HierarchicalCollectives(HierarchicalParts parts);

  void check_reduction(c10::ScalarType dtype, ReduceOp op) const override;
  /// Half types are widened first, so that their sums are rounded once. Small ones: the first rank
  /// of each host gets the host's sum, exchanges it with the other hosts' and hands the result out.
  /// Large ones, where all hosts have as many ranks: each rank does that with its part
  /// (reduce-scatter inside, all-reduce between, all-gather inside).
  void all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override;
  void reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op,
              int root) override;
  void broadcast(Block data, c10::ScalarType dtype, int root) override;
  void all_gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype) override;
  void gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype,
              int root) override;
  void scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
               int root) override;
  /// Large sums, where all hosts have as many ranks: a reduce-scatter inside and one between, so
  /// that a rank sends its own index's pieces alone. Others are an all_reduce of the whole.
  void reduce_scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                      ReduceOp op) override;
  void all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                  c10::ScalarType dtype) override;
  void barrier() override;

 private:
  using Lengths = std::vector<uint64_t>;

  void guarded(const std::function<void()>& function);
  bool is_first() const { return parts_.places.own_index == 0; }
  int ranks() const { return ranks_; }
  int rank() const { return parts_.places.own_rank(); }
  void reduce_tensor(at::Tensor& x, ReduceOp op);
  void reduce_by_hosts(at::Tensor& x, ReduceOp op);
  void reduce_through_first(at::Tensor& x, ReduceOp op);
  void reduce_by_parts(at::Tensor& x, ReduceOp op);
  void scatter_by_parts(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                        ReduceOp op);
  /// Whether each rank is to cross the network with its part of `bytes`.
  bool crosses_by_parts(size_t bytes) const;
  void spread(Block data, int root);
  Lengths gather_lengths(const Lengths& own);
  std::vector<std::byte> gather_all(Block input, const Lengths& lengths);
  uint64_t start_of(const Lengths& lengths, int rank) const;
  void check_length(int rank, uint64_t theirs, uint64_t expected) const;

  HierarchicalParts parts_;
  int ranks_ = 0;
  /// All ranks, by host.
  std::vector<int> order_;
};

}  // namespace weft::dist
