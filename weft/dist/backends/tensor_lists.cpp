#include "weft/dist/backends/tensor_lists.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"

namespace weft::dist {

using core::check;
using core::ShapeError;

std::ostream& operator<<(std::ostream& out, const CallName& name) {
  return out << "dist." << name.backend << ": " << name.operation;
}

Block block_of(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.data_ptr()), static_cast<size_t>(x.nbytes())};
}

std::vector<Block> blocks_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : tensors) blocks.push_back(block_of(tensor));
  return blocks;
}

void check_tensor(const CallName& operation, const at::Tensor& x) {
  check<ShapeError>(x.defined() && x.is_cpu() && !x.is_sparse(), operation,
                    ": expected dense CPU tensors, got another kind; move it to the CPU first");
}

std::vector<at::Tensor> dense_list(const CallName& operation,
                                   const std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(operation, tensor);
    check<ShapeError>(tensor.scalar_type() == dtype, operation,
                      ": expected tensors of one type, got ", dtype, " and ", tensor.scalar_type());
    dense.push_back(tensor.contiguous());
  }
  return dense;
}

void copy_back(const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    if (!to[i].is_same(from[i])) to[i].copy_(from[i]);
  }
}

const at::Tensor& only(const CallName& operation, const std::vector<at::Tensor>& tensors) {
  check<ShapeError>(tensors.size() == 1, operation, ": expected one tensor, got ", tensors.size());
  check_tensor(operation, tensors[0]);
  return tensors[0];
}

void check_list(const CallName& operation, size_t got, int ranks) {
  check<ShapeError>(got == static_cast<size_t>(ranks), operation, ": expected ", ranks,
                    " tensors, one per rank, got ", got);
}

std::vector<at::Tensor> runs_of(const CallName& operation, const at::Tensor& x, int ranks) {
  check<ShapeError>(x.numel() % ranks == 0, operation, ": expected ", x.numel(),
                    " elements to be divisible by ", ranks, " ranks");
  const std::vector<int64_t> sizes(static_cast<size_t>(ranks), x.numel() / ranks);
  return x.view({-1}).split_with_sizes(sizes, 0);
}

std::vector<at::Tensor> rows_of(const CallName& operation, const at::Tensor& x,
                                const std::vector<int64_t>& sizes, int ranks) {
  if (sizes.empty()) return runs_of(operation, x, ranks);
  check_list(operation, sizes.size(), ranks);
  check<ShapeError>(x.dim() > 0, operation, ": expected rows, got a scalar");
  return x.split_with_sizes(sizes, 0);
}

}  // namespace weft::dist
