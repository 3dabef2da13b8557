#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "weft/dist/backends/block_collectives.h"

// What BlockBackend does to tensors before and after the collectives, which know memory only.
namespace weft::dist {

/// Names an operation in messages, e.g. "dist.shm: all_reduce".
struct CallName {
  const char* backend;
  const char* operation;
};
/// "dist.shm: all_gather", as messages begin.
std::ostream& operator<<(std::ostream& out, const CallName& name);

/// The memory of a contiguous tensor.
Block block_of(const at::Tensor& x);
std::vector<Block> blocks_of(const std::vector<at::Tensor>& tensors);

/// Throws ShapeError unless `x` is a dense CPU tensor. `operation` begins the message.
void check_tensor(const CallName& operation, const at::Tensor& x);
/// The one tensor of a list; ShapeError if there is another number of them.
const at::Tensor& only(const CallName& operation, const std::vector<at::Tensor>& tensors);
/// Throws ShapeError unless there is one tensor for each rank.
void check_list(const CallName& operation, size_t got, int ranks);

/// The list's tensors as memory without gaps; ShapeError unless all are of `dtype`.
std::vector<at::Tensor> dense_list(const CallName& operation,
                                   const std::vector<at::Tensor>& tensors, at::ScalarType dtype);
/// Copies what dense_list had to copy back to where it belongs.
void copy_back(const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to);

/// Views of rows of contiguous `x`: as many as `sizes` say, or equally many if it is empty.
std::vector<at::Tensor> rows_of(const CallName& operation, const at::Tensor& x,
                                const std::vector<int64_t>& sizes, int ranks);
/// Views of equal runs of the elements of contiguous `x`, whatever its shape.
std::vector<at::Tensor> runs_of(const CallName& operation, const at::Tensor& x, int ranks);

}  // namespace weft::dist
