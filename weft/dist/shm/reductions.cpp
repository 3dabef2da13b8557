#include <algorithm>
#include <utility>

#include "weft/dist/shm/collective_parts.h"

// The collectives that reduce all ranks' numbers for all of them, or for one.

namespace weft::dist {
namespace {

// Of so many bytes of all others, reading them costs a rank less than a second wait: with two ranks
// 64 KiB took 6.7 instead of 12.1 us, with four, on two cores, 33 instead of 25.
constexpr size_t kSmallBytes = 96 << 10;

}  // namespace

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

bool ShmCollectives::add_sum(Block x, std::byte* own) {
  const std::byte* const room = std::exchange(sum_room_, nullptr);
  core::check<core::InternalError>(own == nullptr || own != room || own == steps_.next_slot(),
                                   "dist.shm: add_sum: another collective came after sum_room");
  const Kernel kernel{find_reduce_kernel(c10::ScalarType::Float, ShmReduce::kSum), sizeof(float)};
  ShmOperation operation =
      describe_call(OpKind::kAllReduce, c10::ScalarType::Float, x.bytes / kernel.item);
  operation.reduce = static_cast<uint8_t>(ShmReduce::kSum);
  guarded(operation, [&] {
    if (is_small(x.bytes)) {
      add_small_sum(x, own, kernel);
    } else {
      add_large_sum(x, own, kernel);
    }
  });
  return true;
}

// Shows `own`, which may lie in the slot already; all ranks' are the sources then.
void ShmCollectives::exchange_small(const std::byte* own, size_t bytes) {
  if (own != steps_.next_slot()) copy_bytes(steps_.next_slot(), own, bytes);
  steps_.exchange();
  for (int r = 0; r < ranks(); ++r) sources_[static_cast<size_t>(r)] = steps_.slot(r);
}

void ShmCollectives::all_reduce_small(Block data, const Kernel& kernel) {
  exchange_small(data.data, data.bytes);
  kernel.run(data.data, sources_.data(), ranks(), static_cast<int64_t>(data.bytes / kernel.item));
}

void ShmCollectives::add_small_sum(Block x, const std::byte* own, const Kernel& kernel) {
  exchange_small(own, x.bytes);
  sum_.resize(std::max(sum_.size(), x.bytes));
  kernel.run(sum_.data(), sources_.data(), ranks(), static_cast<int64_t>(x.bytes / kernel.item));
  kernel.add(x.data, sum_.data(), x.bytes);
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
  reduce_chunks(data, kernel, [&](size_t at, const std::byte* reduced, size_t bytes) {
    copy_bytes(data.data + at, reduced, bytes);
  });
}

void ShmCollectives::add_large_sum(Block x, std::byte* own, const Kernel& kernel) {
  reduce_chunks({own, x.bytes}, kernel, [&](size_t at, const std::byte* reduced, size_t bytes) {
    kernel.add(x.data + at, reduced, bytes);
  });
}

// Calls take(place, reduced, bytes) for all that is reduced; `own` may be overwritten there.
template <class Take>
void ShmCollectives::reduce_chunks(Block own, const Kernel& kernel, Take&& take) {
  const size_t chunk = steps_.segment().layout().slot_bytes();
  const uint64_t chunks = chunks_of(own.bytes, chunk);
  for (uint64_t i = 0; i < chunks; ++i) {
    const size_t at = i * chunk, bytes = chunk_length(own.bytes, i, chunk);
    show_foreign_parts(own.data + at, bytes);
    steps_.exchange();
    if (i > 0) take_foreign_parts(at - chunk, chunk, take);
    const Part part = reduce_own_part(own.data + at, bytes, kernel);
    take(at + part.start, steps_.next_part(), part.bytes);
  }
  steps_.exchange();
  const uint64_t last = chunks - 1;
  take_foreign_parts(last * chunk, chunk_length(own.bytes, last, chunk), take);
}

// Of the chunk that begins at `at`, what the other ranks have reduced.
template <class Take>
void ShmCollectives::take_foreign_parts(size_t at, size_t bytes, Take&& take) const {
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank()) continue;
    const Part theirs = part_of(bytes, r);
    take(at + theirs.start, steps_.part(r), theirs.bytes);
  }
}

// Nobody else reads this rank's own part.
void ShmCollectives::show_foreign_parts(const std::byte* chunk, size_t bytes) const {
  const Part own = part_of(bytes, rank());
  const size_t end = own.start + own.bytes;
  std::byte* const slot = steps_.next_slot();
  copy_bytes(slot, chunk, own.start);
  copy_bytes(slot + end, chunk + end, bytes - end);
}

// Into next_part, where the others will read it.
ShmCollectives::Part ShmCollectives::reduce_own_part(std::byte* chunk, size_t bytes,
                                                     const Kernel& kernel) {
  const Part own = part_of(bytes, rank());
  for (int r = 0; r < ranks(); ++r) {
    sources_[static_cast<size_t>(r)] = (r == rank() ? chunk : steps_.slot(r)) + own.start;
  }
  std::byte* const part = steps_.next_part();
  kernel.run(part, sources_.data(), ranks(), static_cast<int64_t>(own.bytes / kernel.item));
  return own;
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

}  // namespace weft::dist
