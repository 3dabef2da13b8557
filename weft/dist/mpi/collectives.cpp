#include "weft/dist/mpi/collectives.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

// Elements that are widened at a time, and bytes that go in one message.
constexpr int64_t kWidened = 1 << 20;
constexpr int64_t kDirect = 1 << 28;
constexpr size_t kMessage = 1 << 30;
constexpr int kTag = 0;

void copy_block(Block from, Block to) {
  if (from.bytes != 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes);
}

// The outputs one after the other in memory, as one call of MPI wants them.
bool are_adjacent(std::span<const Block> blocks) {
  const std::byte* next = nullptr;
  for (const Block& block : blocks) {
    if (block.bytes == 0) continue;
    if (next != nullptr && block.data != next) return false;
    next = block.data + block.bytes;
  }
  return true;
}

size_t bytes_of(std::span<const Block> blocks) {
  size_t total = 0;
  for (const Block& block : blocks) total += block.bytes;
  return total;
}

}  // namespace

MpiCollectives::MpiCollectives(MPI_Comm comm, int rank, int ranks, const MpiWaiter& waiter)
    : comm_(comm), rank_(rank), ranks_(ranks), waiter_(waiter) {}

// Begins one operation of MPI and waits for it.
template <class Function>
void MpiCollectives::run(OpKind kind, Function&& function) {
  MPI_Request request = MPI_REQUEST_NULL;
  waiter_.begin(kind, [&] { return function(&request); });
  waiter_.wait({&request, 1}, kind);
}

std::byte* MpiCollectives::room(std::vector<std::byte>& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
  return buffer.data();
}

void MpiCollectives::check_reduction(c10::ScalarType dtype, ReduceOp op) const {
  check_mpi_reduction(dtype, op);
}

// To all if `root` is negative.
void MpiCollectives::reduce_piece(std::byte* piece, int count, const MpiReduction& how, int root) {
  if (root < 0) {
    return run(OpKind::kAllReduce, [&](MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, piece, count, how.type, how.op, comm_, request);
    });
  }
  const bool is_root = rank_ == root;
  run(OpKind::kReduce, [&](MPI_Request* request) {
    return MPI_Ireduce(is_root ? MPI_IN_PLACE : piece, is_root ? piece : nullptr, count, how.type,
                       how.op, root, comm_, request);
  });
}

void MpiCollectives::reduce_pieces(std::byte* data, int64_t count, const MpiReduction& how,
                                   int root) {
  const int64_t most = how.widens() ? kWidened : kDirect;
  for (int64_t start = 0; start == 0 || start < count; start += most) {
    const int64_t length = std::min(most, count - start);
    std::byte* const here = data + static_cast<size_t>(start) * how.item;
    std::byte* wire = here;
    if (how.widens()) {
      wire = room(outgoing_, static_cast<size_t>(length) * how.wire_bytes);
      pack_elements(how, here, wire, length);
    }
    reduce_piece(wire, static_cast<int>(length), how, root);
    if (root < 0 || rank_ == root) unpack_elements(how, wire, here, length, ranks_);
  }
}

void MpiCollectives::all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype,
                                ReduceOp op) {
  reduce_pieces(data, count, mpi_reduction(dtype, op), -1);
}

void MpiCollectives::reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op,
                            int root) {
  reduce_pieces(data, count, mpi_reduction(dtype, op), root);
}

void MpiCollectives::broadcast(Block data, c10::ScalarType, int root) {
  for (size_t start = 0; start == 0 || start < data.bytes; start += kMessage) {
    const int length = static_cast<int>(std::min(kMessage, data.bytes - start));
    run(OpKind::kBroadcast, [&](MPI_Request* request) {
      return MPI_Ibcast(data.data + start, length, MPI_BYTE, root, comm_, request);
    });
  }
}

void MpiCollectives::barrier() {
  run(OpKind::kBarrier, [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
}

// The way is chosen by the sizes alone, which all ranks know alike: where a rank's outputs lie, and
// whether its own piece fits, is not known to the others, and messages do not meet MPI's own call.
void MpiCollectives::all_gather(Block input, std::span<const Block> outputs, c10::ScalarType) {
  if (bytes_of(outputs) > INT_MAX) {
    const std::vector<Block> inputs(static_cast<size_t>(ranks_), input);
    return exchange(inputs, outputs, OpKind::kAllGather);
  }
  const Block& own = outputs[static_cast<size_t>(rank_)];
  if (are_adjacent(outputs) && input.bytes == own.bytes) return gather_into(input, outputs);
  gather_aside(input, outputs);
}

// A piece that does not fit travels with the size that the others expect, so that none waits.
void MpiCollectives::gather_aside(Block input, std::span<const Block> outputs) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(bytes_of(outputs));
  std::vector<Block> aside;
  std::byte* next = buffer.get();
  for (const Block& output : outputs) {
    aside.push_back({next, output.bytes});
    next += output.bytes;
  }
  const Block& own = aside[static_cast<size_t>(rank_)];
  copy_block({input.data, std::min(input.bytes, own.bytes)}, own);
  gather_into(own, aside);
  if (input.bytes != own.bytes) give_up(OpKind::kAllGather, rank_, own.bytes, input.bytes);
  for (size_t r = 0; r < outputs.size(); ++r) copy_block(aside[r], outputs[r]);
}

void MpiCollectives::gather_into(Block input, std::span<const Block> outputs) {
  std::vector<int> counts;
  std::vector<int> starts;
  std::byte* first = nullptr;
  int start = 0;
  for (const Block& output : outputs) {
    if (first == nullptr && output.bytes != 0) first = output.data;
    counts.push_back(static_cast<int>(output.bytes));
    starts.push_back(start);
    start += counts.back();
  }
  const Block& own = outputs[static_cast<size_t>(rank_)];
  const bool in_place = input.data == own.data;
  run(OpKind::kAllGather, [&](MPI_Request* request) {
    return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : input.data, static_cast<int>(input.bytes),
                           MPI_BYTE, first, counts.data(), starts.data(), MPI_BYTE, comm_, request);
  });
}

void MpiCollectives::gather(Block input, std::span<const Block> outputs, c10::ScalarType,
                            int root) {
  std::vector<Block> inputs(static_cast<size_t>(ranks_));
  inputs[static_cast<size_t>(root)] = input;
  exchange(inputs, outputs, OpKind::kGather);
}

void MpiCollectives::scatter(std::span<const Block> inputs, Block output, c10::ScalarType,
                             int root) {
  std::vector<Block> outputs(static_cast<size_t>(ranks_));
  outputs[static_cast<size_t>(root)] = output;
  exchange(inputs, outputs, OpKind::kScatter);
}

void MpiCollectives::all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                                c10::ScalarType) {
  exchange(inputs, outputs, OpKind::kAllToAll);
}

// Begins `begin_one` for each peer's block, in messages that MPI can count, and notes them.
template <class Function>
void MpiCollectives::begin_messages(std::span<const Block> blocks, OpKind kind, Messages& messages,
                                    Function&& begin_one) {
  for (int i = 1; i < ranks_; ++i) {
    const int peer = (rank_ + i) % ranks_;
    if (static_cast<size_t>(peer) >= blocks.size()) continue;
    const Block& block = blocks[static_cast<size_t>(peer)];
    for (size_t start = 0; start < block.bytes; start += kMessage) {
      const Block piece{block.data + start, std::min(kMessage, block.bytes - start)};
      messages.requests.push_back(MPI_REQUEST_NULL);
      messages.pieces.push_back(piece);
      waiter_.begin(kind, [&] {
        return begin_one(piece.data, static_cast<int>(piece.bytes), peer,
                         &messages.requests.back());
      });
    }
  }
}

// Sends each its piece and receives theirs, straight from and to where they lie. Nothing is sent
// for an empty piece, which both sides know to be empty.
void MpiCollectives::exchange(std::span<const Block> inputs, std::span<const Block> outputs,
                              OpKind kind) {
  Messages messages;
  begin_messages(outputs, kind, messages,
                 [&](std::byte* data, int bytes, int peer, MPI_Request* request) {
                   return MPI_Irecv(data, bytes, MPI_BYTE, peer, kTag, comm_, request);
                 });
  const size_t received = messages.pieces.size();
  begin_messages(inputs, kind, messages,
                 [&](std::byte* data, int bytes, int peer, MPI_Request* request) {
                   return MPI_Isend(data, bytes, MPI_BYTE, peer, kTag, comm_, request);
                 });
  const auto own = static_cast<size_t>(rank_);
  const bool has_both = own < inputs.size() && own < outputs.size();
  const bool fits = !has_both || inputs[own].bytes == outputs[own].bytes;
  if (has_both && fits) copy_block(inputs[own], outputs[own]);
  std::vector<MPI_Status> statuses(messages.requests.size());
  waiter_.wait(messages.requests, kind, statuses);
  check_received({statuses.data(), received}, {messages.pieces.data(), received}, kind);
  if (!fits) give_up(kind, rank_, outputs[own].bytes, inputs[own].bytes);
}

void MpiCollectives::check_received(std::span<const MPI_Status> statuses,
                                    std::span<const Block> pieces, OpKind kind) const {
  for (size_t i = 0; i < statuses.size(); ++i) {
    int bytes = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if (static_cast<size_t>(bytes) == pieces[i].bytes) continue;
    give_up(kind, statuses[i].MPI_SOURCE, pieces[i].bytes, static_cast<size_t>(bytes));
  }
}

void MpiCollectives::give_up(OpKind kind, int source, size_t expected, size_t got) const {
  const GroupMonitor& monitor = waiter_.monitor();
  waiter_.give_up(kind, core::join(monitor.peer_name(rank_), " expects ", expected, " bytes of ",
                                   monitor.peer_name(source), ", which has ", got,
                                   "; give all ranks the same sizes"));
}

// In rounds, each with a run of every rank's piece, so that little memory is needed for what
// travels, whatever the size.
void MpiCollectives::reduce_scatter(std::span<const Block> inputs, Block output,
                                    c10::ScalarType dtype, ReduceOp op) {
  const MpiReduction how = mpi_reduction(dtype, op);
  const int64_t run_length = std::max<int64_t>(1, kWidened / ranks_);
  int64_t longest = 0;
  for (const Block& input : inputs) {
    longest = std::max(longest, static_cast<int64_t>(input.bytes / how.item));
  }
  const auto run_of = [&](const Block& block, int64_t start) {
    return std::clamp<int64_t>(static_cast<int64_t>(block.bytes / how.item) - start, 0, run_length);
  };
  for (int64_t start = 0; start == 0 || start < longest; start += run_length) {
    std::byte* const sent =
        room(outgoing_, static_cast<size_t>(kWidened + ranks_) * how.wire_bytes);
    std::byte* next = sent;
    std::vector<int> counts;
    for (const Block& input : inputs) {
      const int64_t length = run_of(input, start);
      pack_elements(how, input.data + static_cast<size_t>(start) * how.item, next, length);
      counts.push_back(static_cast<int>(length));
      next += static_cast<size_t>(length) * how.wire_bytes;
    }
    const int64_t own = counts[static_cast<size_t>(rank_)];
    std::byte* const got = room(incoming_, static_cast<size_t>(run_length) * how.wire_bytes);
    run(OpKind::kReduceScatter, [&](MPI_Request* request) {
      return MPI_Ireduce_scatter(sent, got, counts.data(), how.type, how.op, comm_, request);
    });
    unpack_elements(how, got, output.data + static_cast<size_t>(start) * how.item, own, ranks_);
  }
}

}  // namespace weft::dist
