#include "weft/dist/hierarchical/collectives.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "weft/core/error.h"
#include "weft/dist/group_tensors.h"
#include "weft/dist/shm/collectives.h"
#include "weft/shard/split.h"

namespace weft::dist {
namespace {

// From here on it pays that every rank crosses the network with its part.
constexpr size_t kPartsBytes = 256 << 10;

at::Tensor tensor_on(const std::byte* data, int64_t count, at::ScalarType dtype) {
  return at::from_blob(const_cast<std::byte*>(data), {count}, dtype);
}

at::Tensor bytes_on(Block block) {
  return tensor_on(block.data, static_cast<int64_t>(block.bytes), at::kByte);
}

std::byte* bytes_of(const at::Tensor& x) { return static_cast<std::byte*>(x.data_ptr()); }

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

uint64_t sum_of(std::span<const uint64_t> lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
}

std::vector<uint64_t> lengths_of(std::span<const Block> pieces) {
  std::vector<uint64_t> lengths;
  for (const Block& piece : pieces) lengths.push_back(piece.bytes);
  return lengths;
}

// The pieces end to end.
std::vector<std::byte> pack(std::span<const Block> pieces) {
  std::vector<std::byte> packed;
  for (const Block& piece : pieces) {
    packed.insert(packed.end(), piece.data, piece.data + piece.bytes);
  }
  return packed;
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(HierarchicalParts parts)
    : parts_(std::move(parts)) {
  for (const auto& host : parts_.places.hosts) {
    order_.insert(order_.end(), host.begin(), host.end());
  }
  ranks_ = static_cast<int>(order_.size());
}

void HierarchicalCollectives::guarded(const std::function<void()>& function) {
  try {
    function();
  } catch (const core::Error& error) {
    if (parts_.inside != nullptr) parts_.inside->give_up(error.what());
    throw;
  }
}

void HierarchicalCollectives::check_reduction(c10::ScalarType dtype, ReduceOp op) const {
  check_reducible(dtype, op);
}

void HierarchicalCollectives::all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype,
                                         ReduceOp op) {
  check_reduction(dtype, op);
  guarded([&] {
    at::Tensor x = tensor_on(data, count, dtype);
    reduce_tensor(x, op);
  });
}

// An average is a sum until all of it is there. As in shm, it and the half types are rounded once.
void HierarchicalCollectives::reduce_tensor(at::Tensor& x, ReduceOp op) {
  const bool widens = is_half(x.scalar_type()) && op != ReduceOp::kMin && op != ReduceOp::kMax;
  at::Tensor wide = widens ? x.to(at::kFloat) : x;
  const bool averages = op == ReduceOp::kAverage;
  reduce_by_hosts(wide, averages ? ReduceOp::kSum : op);
  if (averages) wide.div_(ranks());
  if (widens) x.copy_(wide);
}

void HierarchicalCollectives::reduce_by_hosts(at::Tensor& x, ReduceOp op) {
  crosses_by_parts(x.nbytes()) ? reduce_by_parts(x, op) : reduce_through_first(x, op);
}

bool HierarchicalCollectives::crosses_by_parts(size_t bytes) const {
  return parts_.places.is_even() && parts_.inside != nullptr && bytes >= kPartsBytes;
}

void HierarchicalCollectives::reduce_through_first(at::Tensor& x, ReduceOp op) {
  if (parts_.inside != nullptr) {
    parts_.inside->collectives().reduce(bytes_of(x), x.numel(), x.scalar_type(), op, 0);
  }
  if (is_first()) parts_.between.all_reduce(x, op);
  spread({bytes_of(x), x.nbytes()}, 0);
}

// Hands `data` of the rank with index `root` to all of this host.
void HierarchicalCollectives::spread(Block data, int root) {
  if (parts_.inside == nullptr) return;
  parts_.inside->collectives().broadcast(data, at::kByte, root);
}

void HierarchicalCollectives::reduce_by_parts(at::Tensor& x, ReduceOp op) {
  BlockCollectives& inside = parts_.inside->collectives();
  const auto n = static_cast<int64_t>(parts_.places.here().size());
  std::vector<Block> pieces;
  for (int64_t i = 0; i < n; ++i) {
    const shard::Range range = shard::part(x.numel(), n, i);
    const auto item = static_cast<int64_t>(x.element_size());
    pieces.push_back({bytes_of(x) + range.start * item, static_cast<size_t>(range.length * item)});
  }
  const auto own = static_cast<size_t>(parts_.places.own_index);
  const shard::Range range = shard::part(x.numel(), n, parts_.places.own_index);
  at::Tensor piece = at::empty({range.length}, x.options());
  inside.reduce_scatter(pieces, {bytes_of(piece), pieces[own].bytes}, x.scalar_type(), op);
  parts_.between.all_reduce(piece, op);
  inside.all_gather({bytes_of(piece), pieces[own].bytes}, pieces, x.scalar_type());
}

void HierarchicalCollectives::reduce(std::byte* data, int64_t count, c10::ScalarType dtype,
                                     ReduceOp op, int) {
  all_reduce(data, count, dtype, op);
}

void HierarchicalCollectives::broadcast(Block data, c10::ScalarType, int root) {
  guarded([&] {
    const HostPlaces& places = parts_.places;
    const int root_host = places.host_of(root);
    if (places.own_host == root_host) spread(data, places.index_of(root));
    if (is_first()) {
      at::Tensor x = bytes_on(data);
      parts_.between.broadcast(x, root_host);
    }
    if (places.own_host != root_host) spread(data, 0);
  });
}

void HierarchicalCollectives::barrier() {
  guarded([&] {
    if (parts_.inside != nullptr) parts_.inside->collectives().barrier();
    if (is_first()) parts_.between.barrier();
    if (parts_.inside != nullptr) parts_.inside->collectives().barrier();
  });
}

// All ranks' bytes by host; `lengths` are by rank.
std::vector<std::byte> HierarchicalCollectives::gather_all(Block input, const Lengths& lengths) {
  const HostPlaces& places = parts_.places;
  std::vector<std::byte> whole(sum_of(lengths));
  std::vector<int64_t> host_bytes;
  for (const auto& host : places.hosts) {
    int64_t bytes = 0;
    for (const int rank : host) bytes += static_cast<int64_t>(lengths[static_cast<size_t>(rank)]);
    host_bytes.push_back(bytes);
  }
  std::vector<Block> outputs;
  for (const int rank : places.here()) {
    outputs.push_back({whole.data() + start_of(lengths, rank), lengths[static_cast<size_t>(rank)]});
  }
  if (parts_.inside != nullptr) {
    parts_.inside->collectives().all_gather(input, outputs, at::kByte);
  } else {
    copy_bytes(outputs[0].data, input.data, input.bytes);
  }
  if (is_first()) {
    const auto own = static_cast<size_t>(places.own_host);
    const at::Tensor here = tensor_on(outputs[0].data, host_bytes[own], at::kByte);
    const at::Tensor all = parts_.between.all_gather(here, 0, host_bytes);
    copy_bytes(whole.data(), bytes_of(all), whole.size());
  }
  spread({whole.data(), whole.size()}, 0);
  return whole;
}

// Where `rank`'s bytes begin among those of all ranks by host.
uint64_t HierarchicalCollectives::start_of(const Lengths& lengths, int rank) const {
  uint64_t start = 0;
  for (const int each : order_) {
    if (each == rank) break;
    start += lengths[static_cast<size_t>(each)];
  }
  return start;
}

void HierarchicalCollectives::check_length(int rank, uint64_t theirs, uint64_t expected) const {
  core::check<core::CommError>(theirs == expected, "dist.Group: expected ", expected,
                               " bytes of the group's rank ", rank, ", which has ", theirs,
                               "; give all ranks the same sizes");
}

// Every rank's list, in rank order; all lists are as long as `own`.
HierarchicalCollectives::Lengths HierarchicalCollectives::gather_lengths(const Lengths& own) {
  Lengths copy = own;
  const size_t bytes = own.size() * sizeof(uint64_t);
  const Lengths equal(static_cast<size_t>(ranks()), bytes);
  const auto whole = gather_all({reinterpret_cast<std::byte*>(copy.data()), bytes}, equal);
  Lengths lists(own.size() * static_cast<size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    copy_bytes(reinterpret_cast<std::byte*>(lists.data() + static_cast<size_t>(rank) * own.size()),
               whole.data() + start_of(equal, rank), bytes);
  }
  return lists;
}

void HierarchicalCollectives::all_gather(Block input, std::span<const Block> outputs,
                                         c10::ScalarType) {
  guarded([&] {
    const Lengths lengths = lengths_of(outputs);
    const auto whole = gather_all(input, lengths);
    for (int rank = 0; rank < ranks(); ++rank) {
      const Block& output = outputs[static_cast<size_t>(rank)];
      copy_bytes(output.data, whole.data() + start_of(lengths, rank), output.bytes);
    }
  });
}

void HierarchicalCollectives::gather(Block input, std::span<const Block> outputs, c10::ScalarType,
                                     int) {
  guarded([&] {
    const Lengths lengths = gather_lengths({input.bytes});
    const auto whole = gather_all(input, lengths);
    for (size_t r = 0; r < outputs.size(); ++r) {
      const int rank = static_cast<int>(r);
      check_length(rank, lengths[r], outputs[r].bytes);
      copy_bytes(outputs[r].data, whole.data() + start_of(lengths, rank), lengths[r]);
    }
  });
}

void HierarchicalCollectives::scatter(std::span<const Block> inputs, Block output,
                                      c10::ScalarType dtype, int root) {
  Lengths lengths = lengths_of(inputs);
  lengths.resize(static_cast<size_t>(ranks()));
  broadcast({reinterpret_cast<std::byte*>(lengths.data()), lengths.size() * sizeof(uint64_t)},
            dtype, root);
  std::vector<std::byte> whole = pack(inputs);
  whole.resize(sum_of(lengths));
  broadcast({whole.data(), whole.size()}, dtype, root);
  guarded([&] {
    const auto own = static_cast<size_t>(rank());
    check_length(root, lengths[own], output.bytes);
    copy_bytes(output.data, whole.data() + sum_of(std::span(lengths).first(own)), output.bytes);
  });
}

void HierarchicalCollectives::reduce_scatter(std::span<const Block> inputs, Block output,
                                             c10::ScalarType dtype, ReduceOp op) {
  check_reduction(dtype, op);
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (sums && crosses_by_parts(sum_of(lengths_of(inputs)))) {
    guarded([&] { scatter_by_parts(inputs, output, dtype, op); });
    return;
  }
  std::vector<std::byte> whole = pack(inputs);
  all_reduce(whole.data(), static_cast<int64_t>(whole.size() / c10::elementSize(dtype)), dtype, op);
  const size_t start = sum_of(lengths_of(inputs.first(static_cast<size_t>(rank()))));
  copy_bytes(output.data, whole.data() + start, output.bytes);
}

// Each rank gets its host's sum of the pieces that belong to the ranks with its index, one on each
// host, and the hosts' sums are exchanged among those. So only pieces of other hosts cross.
void HierarchicalCollectives::scatter_by_parts(std::span<const Block> inputs, Block output,
                                               c10::ScalarType dtype, ReduceOp op) {
  const HostPlaces& places = parts_.places;
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  const auto count_of = [&](Block block) { return static_cast<int64_t>(block.bytes) / item; };
  std::vector<at::Tensor> packed;
  std::vector<int64_t> by_index(places.here().size(), 0);
  std::vector<int64_t> by_host;
  for (size_t index = 0; index < by_index.size(); ++index) {
    for (const int rank : places.across(static_cast<int>(index))) {
      const Block piece = inputs[static_cast<size_t>(rank)];
      packed.push_back(tensor_on(piece.data, count_of(piece), dtype));
      by_index[index] += count_of(piece);
      if (static_cast<int>(index) == places.own_index) by_host.push_back(count_of(piece));
    }
  }
  const at::Tensor whole = at::cat(packed).to(is_half(dtype) ? at::kFloat : dtype);
  std::vector<Block> parts;
  for (const at::Tensor& part : whole.split_with_sizes(by_index)) {
    parts.push_back({bytes_of(part), part.nbytes()});
  }
  const at::Tensor here =
      at::empty({by_index[static_cast<size_t>(places.own_index)]}, whole.options());
  parts_.inside->collectives().reduce_scatter(parts, {bytes_of(here), here.nbytes()},
                                              whole.scalar_type(), ReduceOp::kSum);
  at::Tensor sum = parts_.between.reduce_scatter(here, 0, by_host);
  if (op == ReduceOp::kAverage) sum.div_(ranks());
  tensor_on(output.data, count_of(output), dtype).copy_(sum);
}

void HierarchicalCollectives::all_to_all(std::span<const Block> inputs,
                                         std::span<const Block> outputs, c10::ScalarType) {
  guarded([&] {
    const auto n = static_cast<size_t>(ranks());
    const auto own = static_cast<size_t>(rank());
    const Lengths lists = gather_lengths(lengths_of(inputs));
    Lengths totals;
    for (size_t r = 0; r < n; ++r) totals.push_back(sum_of(std::span(lists).subspan(r * n, n)));
    std::vector<std::byte> packed = pack(inputs);
    const auto whole = gather_all({packed.data(), packed.size()}, totals);
    for (size_t r = 0; r < n; ++r) {
      const int peer = static_cast<int>(r);
      check_length(peer, lists[r * n + own], outputs[r].bytes);
      const uint64_t before = sum_of(std::span(lists).subspan(r * n, own));
      copy_bytes(outputs[r].data, whole.data() + start_of(totals, peer) + before, outputs[r].bytes);
    }
  });
}

}  // namespace weft::dist
