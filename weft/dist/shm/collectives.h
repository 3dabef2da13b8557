#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/group_monitor.h"
#include "weft/dist/shm/reduce.h"
#include "weft/dist/shm/sync.h"

namespace weft::dist {

/// Throws ShapeError if elements of `dtype` cannot be reduced so.
void check_reducible(c10::ScalarType dtype, ReduceOp op);

/// Collectives over a shared-memory segment. A call that fails makes the others fail too.
class ShmCollectives : public BlockCollectives {
 public:
  ShmCollectives(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor);

  int rank() const { return steps_.rank(); }
  int ranks() const { return steps_.ranks(); }

  void check_reduction(c10::ScalarType dtype, ReduceOp op) const override;
  /// Small ones in one step: each rank shows all and reduces all. Large ones in chunks: each rank
  /// reduces its part of a chunk and shows it in the next step (reduce-scatter, then all-gather,
  /// overlapped).
  void all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override;
  Capabilities capabilities() const override {
    return {.unequal_pieces = true,
            .compares_pieces = true,
            .reduce_scatter = true,
            .shared_memory = true};
  }
  std::byte* sum_room(size_t bytes) override;
  bool add_sum(Block x, std::byte* own) override;
  void reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op,
              int root) override;
  void broadcast(Block data, c10::ScalarType dtype, int root) override;
  void all_gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype) override;
  void gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype,
              int root) override;
  void scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
               int root) override;
  void reduce_scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                      ReduceOp op) override;
  void all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                  c10::ScalarType dtype) override;
  void barrier() override;

  const ShmWaiter& waiter() const { return steps_.waiter(); }

 private:
  struct Kernel {
    ReduceKernel run;
    size_t item;

    /// x += y.
    void add(std::byte* x, const std::byte* y, size_t bytes) const {
      const std::byte* const both[] = {x, y};
      run(x, both, 2, static_cast<int64_t>(bytes / item));
    }
  };
  struct Part {
    size_t start;
    size_t bytes;
  };

  template <class Function>
  void guarded(const ShmOperation& operation, Function&& function);
  bool is_small(size_t bytes) const;
  void exchange_small(const std::byte* own, size_t bytes);
  void all_reduce_small(Block data, const Kernel& kernel);
  void add_small_sum(Block x, const std::byte* own, const Kernel& kernel);
  void all_reduce_large(Block data, const Kernel& kernel);
  void add_large_sum(Block x, std::byte* own, const Kernel& kernel);
  template <class Take>
  void reduce_chunks(Block own, const Kernel& kernel, Take&& take);
  void show_foreign_parts(const std::byte* chunk, size_t bytes) const;
  Part reduce_own_part(std::byte* chunk, size_t bytes, const Kernel& kernel);
  template <class Take>
  void take_foreign_parts(size_t at, size_t bytes, Take&& take) const;
  Part part_of(size_t chunk_bytes, int rank) const;
  uint64_t most_chunks() const;
  std::vector<Block> same_for_all(Block output) const;
  void check_counts(uint64_t bytes, size_t item) const;
  void check_bytes(int peer, uint64_t theirs, uint64_t expected) const;
  void gather_chunks(Block input, std::span<const Block> outputs, size_t item);
  size_t lane_bytes() const;
  uint64_t agree_on_lanes(std::span<const Block> inputs, std::span<const Block> outputs);
  void show_lanes(std::span<const Block> inputs, uint64_t chunk) const;

  ShmSteps steps_;
  std::vector<const std::byte*> sources_;
  /// What sum_room gave last.
  const std::byte* sum_room_ = nullptr;
  std::vector<std::byte> sum_;
};

}  // namespace weft::dist
