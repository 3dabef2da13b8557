// The operations of BlockBackend that deal out pieces.
#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/backends/tensor_lists.h"

namespace weft::dist {

using core::check;
using core::ShapeError;

BlockBackend::WorkPtr BlockBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const at::Tensor x = only(call("gather"), inputs);
  const int root = static_cast<int>(options.rootRank);
  Tensors out;
  if (rank_ == root) {
    check_list(call("gather"), outputs.size(), 1);
    check_list(call("gather"), outputs[0].size(), size_);
    out = outputs[0];
  }
  return run(c10d::OpType::GATHER, options.asyncOp, out, [this, x, out, root]() mutable {
    const at::Tensor dense = x.contiguous();
    const Tensors to = dense_list(call("gather"), out, x.scalar_type());
    collectives_.gather(block_of(dense), blocks_of(to), x.scalar_type(), root);
    copy_back(to, out);
  });
}

BlockBackend::WorkPtr BlockBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const at::Tensor x = only(call("scatter"), outputs);
  const int root = static_cast<int>(options.rootRank);
  Tensors in;
  if (rank_ == root) {
    check_list(call("scatter"), inputs.size(), 1);
    check_list(call("scatter"), inputs[0].size(), size_);
    in = inputs[0];
  }
  return run(c10d::OpType::SCATTER, options.asyncOp, outputs, [this, x, in, root]() mutable {
    const at::Tensor dense = x.contiguous();
    const Tensors from = dense_list(call("scatter"), in, x.scalar_type());
    collectives_.scatter(blocks_of(from), block_of(dense), x.scalar_type(), root);
    if (!dense.is_same(x)) x.copy_(dense);
  });
}

BlockBackend::WorkPtr BlockBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor x = only(call("reduce_scatter"), outputs);
  check_list(call("reduce_scatter"), inputs.size(), 1);
  check_list(call("reduce_scatter"), inputs[0].size(), size_);
  const auto own = static_cast<size_t>(rank_);
  check<ShapeError>(inputs[0][own].numel() == x.numel(), call("reduce_scatter"),
                    ": expected an output as large as this rank's input, ", inputs[0][own].numel(),
                    " elements, got ", x.numel());
  const ReduceOp op = to_reduce_op(options.reduceOp);
  collectives_.check_reduction(x.scalar_type(), op);
  return run(c10d::OpType::REDUCE_SCATTER, options.asyncOp, outputs,
             [this, x, in = inputs[0], op]() mutable {
               const at::Tensor dense = x.contiguous();
               const Tensors from = dense_list(call("reduce_scatter"), in, x.scalar_type());
               collectives_.reduce_scatter(blocks_of(from), block_of(dense), x.scalar_type(), op);
               if (!dense.is_same(x)) x.copy_(dense);
             });
}

BlockBackend::WorkPtr BlockBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_tensor(call("reduce_scatter"), input);
  Tensors outputs = {output};
  std::vector<Tensors> pieces = {runs_of(call("reduce_scatter"), input.contiguous(), size_)};
  return reduce_scatter(outputs, pieces, options);
}

BlockBackend::WorkPtr BlockBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_list(call("reduce_scatter"), outputs.size(), static_cast<int>(inputs.size()));
  WorkPtr last;
  for (size_t i = 0; i < inputs.size(); ++i) {
    last = _reduce_scatter_base(outputs[i], inputs[i], options);
  }
  return last ? last : run(c10d::OpType::COALESCED, options.asyncOp, {}, [] {});
}

BlockBackend::WorkPtr BlockBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  check_list(call("all_to_all"), outputs.size(), size_);
  check_list(call("all_to_all"), inputs.size(), size_);
  check_tensor(call("all_to_all"), inputs[0]);
  return run(c10d::OpType::ALLTOALL, options.asyncOp, outputs,
             [this, out = outputs, in = inputs]() mutable {
               const at::ScalarType dtype = in[0].scalar_type();
               const Tensors from = dense_list(call("all_to_all"), in, dtype);
               const Tensors to = dense_list(call("all_to_all"), out, dtype);
               collectives_.all_to_all(blocks_of(from), blocks_of(to), dtype);
               copy_back(to, out);
             });
}

BlockBackend::WorkPtr BlockBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_sizes,
                                                  std::vector<int64_t>& input_sizes,
                                                  const c10d::AllToAllOptions& options) {
  check_tensor(call("all_to_all"), output);
  check_tensor(call("all_to_all"), input);
  check<ShapeError>(output.is_contiguous(), call("all_to_all"),
                    ": expected a contiguous output, got strides ", output.strides());
  Tensors to = rows_of(call("all_to_all"), output, output_sizes, size_);
  Tensors from = rows_of(call("all_to_all"), input.contiguous(), input_sizes, size_);
  return alltoall(to, from, options);
}

}  // namespace weft::dist
