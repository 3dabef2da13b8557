#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/dist/backends/capabilities.h"
#include "weft/dist/reduce_op.h"

namespace weft::dist {

/// Contiguous memory of one rank or one piece.
struct Block {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// One message as it goes ahead of its bytes.
struct Message {
  int32_t tag = 0;
  int32_t dtype = 0;
  uint64_t bytes = 0;
};

/// Collectives on plain memory, as a transport of our own implements them. All ranks of the group
/// make the same calls in the same order, from one thread at a time. They throw CommError when a
/// peer is gone or does not fit.
class BlockCollectives {
 public:
  virtual ~BlockCollectives() = default;

  /// What it does with CPU tensors: pieces of different sizes and a reduce-scatter of its own, and
  /// with shared_memory all_gather's `input` may be its own place among the outputs. Not
  /// collective.
  virtual Capabilities capabilities() const {
    return {.unequal_pieces = true, .reduce_scatter = true};
  }
  /// Throws ShapeError if elements of `dtype` cannot be reduced so. Not collective.
  virtual void check_reduction(c10::ScalarType dtype, ReduceOp op) const = 0;
  /// Reduces `count` elements in place.
  virtual void all_reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op) = 0;
  /// Memory for `bytes` that the others read in this rank's next call, which must be add_sum; null
  /// if there is none. Not collective.
  virtual std::byte* sum_room(size_t /*bytes*/) { return nullptr; }
  /// Adds to `x` the ranks' sum of `own`, as floats, which is sum_room or of one's own; false, and
  /// nothing is done, if there is no better way than all_reduce.
  virtual bool add_sum(Block /*x*/, std::byte* /*own*/) { return false; }
  /// all_reduce, but only `root` gets the result; elsewhere `data` may be overwritten.
  virtual void reduce(std::byte* data, int64_t count, c10::ScalarType dtype, ReduceOp op,
                      int root) = 0;
  /// `root`'s bytes go to all.
  virtual void broadcast(Block data, c10::ScalarType dtype, int root) = 0;
  /// Rank r's `input` goes to `outputs[r]` on all ranks; sizes may differ between ranks.
  virtual void all_gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype) = 0;
  /// The same, but only `root` has outputs.
  virtual void gather(Block input, std::span<const Block> outputs, c10::ScalarType dtype,
                      int root) = 0;
  /// `root`'s `inputs[r]` goes to rank r.
  virtual void scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                       int root) = 0;
  /// Reduces `inputs[r]` over all ranks into rank r's `output`; pieces may differ in size.
  virtual void reduce_scatter(std::span<const Block> inputs, Block output, c10::ScalarType dtype,
                              ReduceOp op) = 0;
  /// This rank's `inputs[r]` goes to rank r's `outputs[this rank]`.
  virtual void all_to_all(std::span<const Block> inputs, std::span<const Block> outputs,
                          c10::ScalarType dtype) = 0;
  virtual void barrier() = 0;
};

/// What a transport of our own brings for one group.
class BlockTransport {
 public:
  virtual ~BlockTransport() = default;

  virtual BlockCollectives& collectives() = 0;
  /// Begins a message in its turn and returns what waits until `data` may be overwritten, to be
  /// called once and in the order of the messages to a destination.
  virtual std::function<void()> begin_send(int destination, const Message& message,
                                           const std::byte* data) = 0;
  /// Fills `data` with the next message of `message.tag`; CommError if it is another than `message`
  /// says. One thread at a time per source.
  virtual void receive(int source, const Message& message, std::byte* data) = 0;
  /// The same from whoever sends first; returns the source. ShapeError if it cannot do that.
  virtual int receive_any(const Message& message, std::byte* data) = 0;
  /// A message could not be sent: the group must not continue.
  virtual void give_up(const char* text) = 0;
  /// The group goes away; `in_error` if that is because of an exception. What still waits must end.
  virtual void leave(bool in_error) = 0;
};

}  // namespace weft::dist
