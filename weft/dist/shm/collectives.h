#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "weft/dist/group_monitor.h"
#include "weft/dist/shm/reduce.h"
#include "weft/dist/shm/sync.h"

namespace weft::dist {

/// Contiguous memory of one rank or one piece.
struct Block {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Collectives on plain memory over a shared-memory segment. All ranks of the group make the same
/// calls in the same order, from one thread at a time. A call that fails makes the others fail too.
class ShmCollectives {
 public:
  ShmCollectives(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor);

  int rank() const { return steps_.rank(); }
  int ranks() const { return steps_.ranks(); }

  /// Reduces `count` elements in place. Small ones in one step: each rank shows all and reduces
  /// all. Large ones in chunks: each rank reduces its part of a chunk and shows it in the next step
  /// (reduce-scatter, then all-gather, overlapped).
  void all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ShmReduce op);
  /// The same, but only `root` gets the result.
  void reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ShmReduce op, int root);
  /// `root`'s bytes go to all.
  void broadcast(Block data, c10::ScalarType dtype, int root);
  /// Rank r's `input` goes to `outputs[r]` on all ranks; sizes may differ between ranks.
  void all_gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype);
  /// The same, but only `root` has outputs.
  void gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype, int root);
  /// `root`'s `inputs[r]` goes to rank r.
  void scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype, int root);
  /// Reduces `inputs[r]` over all ranks into rank r's `output`; pieces may differ in size.
  void reduce_scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                      ShmReduce op);
  /// This rank's `inputs[r]` goes to rank r's `outputs[this rank]`.
  void all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                  c10::ScalarType dtype);
  void barrier();

  const ShmWaiter& waiter() const { return steps_.waiter(); }

 private:
  struct Kernel {
    ReduceKernel run;
    size_t item;
  };
  struct Part {
    size_t start;
    size_t bytes;
  };

  template <class Function>
  void guarded(const ShmOperation& operation, Function&& function);
  void all_reduce_small(Block data, const Kernel& kernel);
  void all_reduce_large(Block data, const Kernel& kernel);
  void show_foreign_parts(const std::byte* chunk, size_t bytes) const;
  void reduce_own_part(std::byte* chunk, size_t bytes, const Kernel& kernel);
  void collect_parts(std::byte* chunk, size_t bytes) const;
  Part part_of(size_t chunk_bytes, int rank) const;
  uint64_t most_chunks() const;
  void check_bytes(int peer, uint64_t theirs, uint64_t expected) const;
  void gather_chunks(Block input, std::span<const Block> outputs, size_t item);
  size_t lane_bytes() const;
  uint64_t agree_on_lanes(std::span<const Block> inputs, std::span<const Block> outputs);
  void show_lanes(std::span<const Block> inputs, uint64_t chunk) const;

  ShmSteps steps_;
  std::vector<const std::byte*> sources_;
};

}  // namespace weft::dist
