#pragma once

#include <span>
#include <vector>

#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/mpi/api.h"
#include "weft/dist/mpi/reduction.h"
#include "weft/dist/mpi/wait.h"

namespace weft::dist {

/// Collectives by MPI's nonblocking ones, in pieces that fit its counts of type int. Source: MPI: A
/// Message-Passing Interface Standard, Version 3.1, chapter 5.12.
class MpiCollectives : public BlockCollectives {
 public:
  /// `comm` holds the group's ranks in its order.
  MpiCollectives(MPI_Comm comm, int rank, int ranks, const MpiWaiter& waiter);

  void check_reduction(c10::ScalarType dtype, ReduceOp op) const override;
  void all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override;
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

 private:
  // Messages under way, and where their bytes are.
  struct Messages {
    std::vector<MPI_Request> requests;
    std::vector<Block> pieces;
  };

  template <class Function>
  void run(OpKind kind, Function&& function);
  std::byte* room(std::vector<std::byte>& buffer, size_t bytes);
  void reduce_piece(std::byte* piece, int count, const MpiReduction& how, int root);
  void reduce_pieces(std::byte* data, int64_t count, const MpiReduction& how, int root);
  void gather_into(Block input, std::span<const Block> outputs);
  void gather_aside(Block input, std::span<const Block> outputs);
  template <class Function>
  void begin_messages(std::span<const Block> blocks, OpKind kind, Messages& messages,
                      Function&& begin_one);
  void exchange(std::span<const Block> inputs, std::span<const Block> outputs, OpKind kind);
  void check_received(std::span<const MPI_Status> statuses, std::span<const Block> pieces,
                      OpKind kind) const;
  [[noreturn]] void give_up(OpKind kind, int source, size_t expected, size_t got) const;

  MPI_Comm comm_;
  int rank_;
  int ranks_;
  const MpiWaiter& waiter_;
  // What travels when it is not the caller's own memory.
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_;
};

}  // namespace weft::dist
