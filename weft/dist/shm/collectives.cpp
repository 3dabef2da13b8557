#include "weft/dist/shm/collectives.h"

#include "weft/dist/shm/collective_parts.h"

namespace weft::dist {

ShmCollectives::ShmCollectives(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor)
    : steps_(segment, rank, std::move(monitor)),
      sources_(static_cast<size_t>(segment.layout().ranks())) {}

void check_reducible(c10::ScalarType dtype, ReduceOp op) {
  find_reduce_kernel(dtype, to_shm_reduce(op));
}

void ShmCollectives::check_reduction(c10::ScalarType dtype, ReduceOp op) const {
  check_reducible(dtype, op);
}

void ShmCollectives::broadcast(Block data, c10::ScalarType dtype, int root) {
  const size_t chunk = steps_.segment().layout().slot_bytes();
  ShmOperation operation =
      describe_call(OpKind::kBroadcast, dtype, data.bytes / c10::elementSize(dtype));
  operation.root = static_cast<uint32_t>(root);
  guarded(operation, [&] {
    for (uint64_t i = 0; i < std::max<uint64_t>(1, chunks_of(data.bytes, chunk)); ++i) {
      std::byte* const here = data.data + i * chunk;
      const size_t bytes = chunk_length(data.bytes, i, chunk);
      if (rank() == root) copy_bytes(steps_.next_slot(), here, bytes);
      steps_.exchange();
      if (rank() != root) copy_bytes(here, steps_.slot(root), bytes);
    }
  });
}

void ShmCollectives::barrier() {
  guarded(describe_call(OpKind::kBarrier, c10::ScalarType::Byte, 0), [&] { steps_.exchange(); });
}

void ShmCollectives::all_gather(Block input, std::span<const Block> outputs,
                                c10::ScalarType dtype) {
  const size_t item = c10::elementSize(dtype);
  ShmOperation operation = describe_call(OpKind::kAllGather, dtype, input.bytes / item);
  operation.chunks = chunks_of(input.bytes, steps_.segment().layout().slot_bytes());
  guarded(operation, [&] { gather_chunks(input, outputs, item); });
}

void ShmCollectives::gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype,
                            int root) {
  const size_t item = c10::elementSize(dtype);
  ShmOperation operation = describe_call(OpKind::kGather, dtype, input.bytes / item);
  operation.root = static_cast<uint32_t>(root);
  operation.chunks = chunks_of(input.bytes, steps_.segment().layout().slot_bytes());
  guarded(operation, [&] { gather_chunks(input, outputs, item); });
}

void ShmCollectives::gather_chunks(Block input, std::span<const Block> outputs, size_t item) {
  const size_t chunk = steps_.segment().layout().slot_bytes();
  uint64_t chunks = 1;
  for (uint64_t i = 0; i < chunks; ++i) {
    copy_bytes(steps_.next_slot(), input.data + i * chunk, chunk_length(input.bytes, i, chunk));
    steps_.exchange();
    if (i == 0) chunks = most_chunks();
    for (size_t r = 0; r < outputs.size(); ++r) {
      const int peer = static_cast<int>(r);
      if (i == 0) check_bytes(peer, steps_.operation(peer).count * item, outputs[r].bytes);
      const std::byte* from = peer == rank() ? input.data + i * chunk : steps_.slot(peer);
      copy_bytes(outputs[r].data + i * chunk, from, chunk_length(outputs[r].bytes, i, chunk));
    }
  }
}

uint64_t ShmCollectives::most_chunks() const {
  uint64_t most = 1;
  for (int r = 0; r < ranks(); ++r) most = std::max(most, steps_.operation(r).chunks);
  return most;
}

void ShmCollectives::check_bytes(int peer, uint64_t theirs, uint64_t expected) const {
  if (theirs == expected) return;
  const GroupMonitor& monitor = steps_.waiter().monitor();
  core::fail<core::CommError>("dist.Group: group ", monitor.name(), ": ", monitor.peer_name(rank()),
                              " expects ", expected, " bytes of ", monitor.peer_name(peer),
                              ", which has ", theirs, "; give all ranks the same sizes");
}

// A slot is cut into one lane for each rank that reads it.
size_t ShmCollectives::lane_bytes() const {
  const size_t n = static_cast<size_t>(ranks());
  return steps_.segment().layout().slot_bytes() / n / kLine * kLine;
}

// Shows all what each will get, and checks that each expects it; the number of chunks follows.
uint64_t ShmCollectives::agree_on_lanes(std::span<const Block> inputs,
                                        std::span<const Block> outputs) {
  const auto n = static_cast<size_t>(ranks());
  std::vector<uint64_t> sizes(n, 0);
  for (size_t r = 0; r < inputs.size(); ++r) sizes[r] = inputs[r].bytes;
  std::memcpy(steps_.next_slot(), sizes.data(), n * sizeof(uint64_t));
  steps_.exchange();
  uint64_t most = 0;
  for (size_t r = 0; r < n; ++r) {
    const int peer = static_cast<int>(r);
    std::memcpy(sizes.data(), steps_.slot(peer), n * sizeof(uint64_t));
    for (const uint64_t bytes : sizes) most = std::max(most, chunks_of(bytes, lane_bytes()));
    if (r < outputs.size()) {
      check_bytes(peer, sizes[static_cast<size_t>(rank())], outputs[r].bytes);
    }
  }
  return most;
}

// Every rank brings a piece as large as the output.
std::vector<Block> ShmCollectives::same_for_all(Block output) const {
  return std::vector<Block>(static_cast<size_t>(ranks()), output);
}

void ShmCollectives::check_counts(uint64_t bytes, size_t item) const {
  for (int r = 0; r < ranks(); ++r) check_bytes(r, steps_.operation(r).count * item, bytes);
}

void ShmCollectives::show_lanes(std::span<const Block> inputs, uint64_t chunk) const {
  const size_t lane = lane_bytes();
  for (size_t r = 0; r < inputs.size(); ++r) {
    if (static_cast<int>(r) == rank()) continue;
    copy_bytes(steps_.next_slot() + r * lane, inputs[r].data + chunk * lane,
               chunk_length(inputs[r].bytes, chunk, lane));
  }
}

void ShmCollectives::scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                             int root) {
  ShmOperation operation =
      describe_call(OpKind::kScatter, dtype, output.bytes / c10::elementSize(dtype));
  operation.root = static_cast<uint32_t>(root);
  guarded(operation, [&] {
    // Only the root has something for this rank.
    std::vector<Block> outputs(static_cast<size_t>(ranks()));
    outputs[static_cast<size_t>(root)] = output;
    const uint64_t chunks = agree_on_lanes(inputs, outputs);
    const size_t lane = lane_bytes();
    const auto own = static_cast<size_t>(rank());
    for (uint64_t i = 0; i < chunks; ++i) {
      show_lanes(inputs, i);
      steps_.exchange();
      const std::byte* from =
          rank() == root ? inputs[own].data + i * lane : steps_.slot(root) + own * lane;
      copy_bytes(output.data + i * lane, from, chunk_length(output.bytes, i, lane));
    }
  });
}

void ShmCollectives::reduce_scatter(std::span<const Block> inputs, Block output,
                                    c10::ScalarType dtype, ReduceOp op) {
  const Kernel kernel{find_reduce_kernel(dtype, to_shm_reduce(op)), c10::elementSize(dtype)};
  ShmOperation operation = describe_call(OpKind::kReduceScatter, dtype, output.bytes / kernel.item);
  operation.reduce = static_cast<uint8_t>(to_shm_reduce(op));
  // Pieces of one length need no step in which the ranks tell their lengths.
  const bool even = std::all_of(inputs.begin(), inputs.end(),
                                [&](const Block& each) { return each.bytes == output.bytes; });
  operation.even = even ? 1 : 0;
  guarded(operation, [&] {
    const size_t lane = lane_bytes();
    const uint64_t chunks = even ? std::max<uint64_t>(1, chunks_of(output.bytes, lane))
                                 : agree_on_lanes(inputs, same_for_all(output));
    const auto own = static_cast<size_t>(rank());
    for (uint64_t i = 0; i < chunks; ++i) {
      show_lanes(inputs, i);
      steps_.exchange();
      if (even && i == 0) check_counts(output.bytes, kernel.item);
      for (size_t r = 0; r < sources_.size(); ++r) {
        sources_[r] =
            r == own ? inputs[own].data + i * lane : steps_.slot(static_cast<int>(r)) + own * lane;
      }
      const size_t bytes = chunk_length(output.bytes, i, lane);
      kernel.run(output.data + i * lane, sources_.data(), ranks(),
                 static_cast<int64_t>(bytes / kernel.item));
    }
  });
}

void ShmCollectives::all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                                c10::ScalarType dtype) {
  guarded(describe_call(OpKind::kAllToAll, dtype, 0), [&] {
    const uint64_t chunks = agree_on_lanes(inputs, outputs);
    const size_t lane = lane_bytes();
    const auto own = static_cast<size_t>(rank());
    for (uint64_t i = 0; i < chunks; ++i) {
      show_lanes(inputs, i);
      steps_.exchange();
      for (size_t r = 0; r < outputs.size(); ++r) {
        const std::byte* from =
            r == own ? inputs[own].data + i * lane : steps_.slot(static_cast<int>(r)) + own * lane;
        copy_bytes(outputs[r].data + i * lane, from, chunk_length(outputs[r].bytes, i, lane));
      }
    }
  });
}

}  // namespace weft::dist
