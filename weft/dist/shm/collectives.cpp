#include "weft/dist/shm/collectives.h"

#include <algorithm>
#include <cstring>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using core::CommError;

// Of so many bytes of all others, reading them costs a rank less than a second wait: with two ranks
// 64 KiB took 6.7 instead of 12.1 us, with four, on two cores, 33 instead of 25.
constexpr size_t kSmallBytes = 96 << 10;
// Pieces start on lines of their own.
constexpr size_t kLine = 64;

uint64_t chunks_of(size_t bytes, size_t chunk) { return (bytes + chunk - 1) / chunk; }

size_t chunk_length(size_t bytes, uint64_t index, size_t chunk) {
  const size_t start = index * chunk;
  return start >= bytes ? 0 : std::min(chunk, bytes - start);
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

ShmOperation describe_call(OpKind kind, c10::ScalarType dtype, uint64_t count) {
  ShmOperation operation;
  operation.kind = static_cast<uint8_t>(kind);
  operation.dtype = static_cast<int8_t>(dtype);
  operation.count = count;
  return operation;
}

ShmReduce to_shm_reduce(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ShmReduce::kSum;
    case ReduceOp::kAverage:
      return ShmReduce::kAverage;
    case ReduceOp::kMin:
      return ShmReduce::kMin;
    case ReduceOp::kMax:
      return ShmReduce::kMax;
    case ReduceOp::kProduct:
      return ShmReduce::kProduct;
  }
  core::fail<core::InternalError>("dist.shm: unknown reduction");
}

}  // namespace

ShmCollectives::ShmCollectives(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor)
    : steps_(segment, rank, std::move(monitor)),
      sources_(static_cast<size_t>(segment.layout().ranks())) {}

// One rank that cannot go on must not leave the others waiting.
template <class Function>
void ShmCollectives::guarded(const ShmOperation& operation, Function&& function) {
  try {
    steps_.begin(operation);
    function();
  } catch (const core::Error& error) {
    steps_.waiter().abort(error.what());
    throw;
  }
}

void check_reducible(c10::ScalarType dtype, ReduceOp op) {
  find_reduce_kernel(dtype, to_shm_reduce(op));
}

void ShmCollectives::check_reduction(c10::ScalarType dtype, ReduceOp op) const {
  check_reducible(dtype, op);
}

void ShmCollectives::all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype,
                                ReduceOp op) {
  const Kernel kernel{find_reduce_kernel(dtype, to_shm_reduce(op)), c10::elementSize(dtype)};
  const Block block{data, static_cast<size_t>(count) * kernel.item};
  ShmOperation operation = describe_call(OpKind::kAllReduce, dtype, static_cast<uint64_t>(count));
  operation.reduce = static_cast<uint8_t>(to_shm_reduce(op));
  guarded(operation, [&] {
    if (is_small(block.bytes)) {
      all_reduce_small(block, kernel);
    } else {
      all_reduce_large(block, kernel);
    }
  });
}

bool ShmCollectives::is_small(size_t bytes) const {
  return bytes * static_cast<size_t>(std::max(1, ranks() - 1)) <= kSmallBytes;
}

// Nobody reads the next slot any more: all have shown the step after its last one.
std::byte* ShmCollectives::sum_room(size_t bytes) {
  if (!is_small(bytes)) return nullptr;
  std::byte* const room = steps_.next_slot();
  sum_room_ = room;
  return room;
}

void ShmCollectives::add_sum(Block x) {
  core::check<core::InternalError>(sum_room_ == steps_.next_slot(),
                                   "dist.shm: add_sum: another collective came after sum_room");
  const ReduceKernel add = find_reduce_kernel(c10::ScalarType::Float, ShmReduce::kSum);
  const size_t count = x.bytes / sizeof(float);
  ShmOperation operation = describe_call(OpKind::kAllReduce, c10::ScalarType::Float, count);
  operation.reduce = static_cast<uint8_t>(ShmReduce::kSum);
  guarded(operation, [&] {
    steps_.exchange();
    for (int r = 0; r < ranks(); ++r) sources_[static_cast<size_t>(r)] = steps_.slot(r);
    sum_.resize(std::max(sum_.size(), x.bytes));
    add(sum_.data(), sources_.data(), ranks(), static_cast<int64_t>(count));
    const std::byte* const both[] = {x.data, sum_.data()};
    add(x.data, both, 2, static_cast<int64_t>(count));
  });
}

void ShmCollectives::all_reduce_small(Block data, const Kernel& kernel) {
  copy_bytes(steps_.next_slot(), data.data, data.bytes);
  steps_.exchange();
  for (int r = 0; r < ranks(); ++r) sources_[static_cast<size_t>(r)] = steps_.slot(r);
  sources_[static_cast<size_t>(rank())] = data.data;
  kernel.run(data.data, sources_.data(), ranks(), static_cast<int64_t>(data.bytes / kernel.item));
}

// A chunk is dealt out in whole cache lines, which no element straddles.
ShmCollectives::Part ShmCollectives::part_of(size_t chunk_bytes, int rank) const {
  const size_t units = (chunk_bytes + kLine - 1) / kLine;
  const auto n = static_cast<size_t>(ranks());
  const auto r = static_cast<size_t>(rank);
  const size_t start = std::min(chunk_bytes, units * r / n * kLine);
  const size_t end = std::min(chunk_bytes, units * (r + 1) / n * kLine);
  return {start, end - start};
}

void ShmCollectives::all_reduce_large(Block data, const Kernel& kernel) {
  const size_t chunk = steps_.segment().layout().slot_bytes();
  const uint64_t chunks = chunks_of(data.bytes, chunk);
  for (uint64_t i = 0; i < chunks; ++i) {
    std::byte* const here = data.data + i * chunk;
    const size_t bytes = chunk_length(data.bytes, i, chunk);
    show_foreign_parts(here, bytes);
    steps_.exchange();
    if (i > 0) collect_parts(here - chunk, chunk);
    reduce_own_part(here, bytes, kernel);
  }
  steps_.exchange();
  collect_parts(data.data + (chunks - 1) * chunk, chunk_length(data.bytes, chunks - 1, chunk));
}

// Nobody else reads this rank's own part.
void ShmCollectives::show_foreign_parts(const std::byte* chunk, size_t bytes) const {
  const Part own = part_of(bytes, rank());
  const size_t end = own.start + own.bytes;
  std::byte* const slot = steps_.next_slot();
  copy_bytes(slot, chunk, own.start);
  copy_bytes(slot + end, chunk + end, bytes - end);
}

void ShmCollectives::reduce_own_part(std::byte* chunk, size_t bytes, const Kernel& kernel) {
  const Part own = part_of(bytes, rank());
  for (int r = 0; r < ranks(); ++r) {
    sources_[static_cast<size_t>(r)] = (r == rank() ? chunk : steps_.slot(r)) + own.start;
  }
  std::byte* const part = steps_.next_part();
  kernel.run(part, sources_.data(), ranks(), static_cast<int64_t>(own.bytes / kernel.item));
  copy_bytes(chunk + own.start, part, own.bytes);
}

void ShmCollectives::collect_parts(std::byte* chunk, size_t bytes) const {
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    const Part theirs = part_of(bytes, r);
    copy_bytes(chunk + theirs.start, steps_.part(r), theirs.bytes);
  }
}

void ShmCollectives::reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op,
                            int root) {
  const Kernel kernel{find_reduce_kernel(dtype, to_shm_reduce(op)), c10::elementSize(dtype)};
  const size_t total = static_cast<size_t>(count) * kernel.item;
  const size_t chunk = steps_.segment().layout().slot_bytes();
  ShmOperation operation = describe_call(OpKind::kReduce, dtype, static_cast<uint64_t>(count));
  operation.reduce = static_cast<uint8_t>(to_shm_reduce(op));
  operation.root = static_cast<uint32_t>(root);
  guarded(operation, [&] {
    for (uint64_t i = 0; i < std::max<uint64_t>(1, chunks_of(total, chunk)); ++i) {
      std::byte* const here = data + i * chunk;
      const size_t bytes = chunk_length(total, i, chunk);
      if (rank() != root) copy_bytes(steps_.next_slot(), here, bytes);
      steps_.exchange();
      if (rank() != root) continue;
      for (int r = 0; r < ranks(); ++r) sources_[static_cast<size_t>(r)] = steps_.slot(r);
      sources_[static_cast<size_t>(root)] = here;
      kernel.run(here, sources_.data(), ranks(), static_cast<int64_t>(bytes / kernel.item));
    }
  });
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
  core::fail<CommError>("dist.Group: group ", monitor.name(), ": ", monitor.peer_name(rank()),
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
