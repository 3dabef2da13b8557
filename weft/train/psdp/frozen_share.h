#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/dist/group.h"
#include "weft/train/psdp/buffer_pool.h"

namespace weft::train {

/// What a module computes with and training never changes: parameters that need no gradient, and
/// the parts of quantized linear layers. Each once, in the module's order.
std::vector<at::Tensor> frozen_tensors(const torch::nn::Module& module);

/// Frozen tensors of any types that are used together, held as 1/data of their bytes between uses
/// and gathered as bytes: no gradients, masters or optimizer state belong to them. The tensors
/// become views of one run, which has memory only while it is gathered. begin_gather is collective
/// over the group.
class FrozenShare {
 public:
  /// Takes over the tensors' values, which are equal on all ranks of `data`. `pool` outlives this.
  FrozenShare(const std::vector<at::Tensor>& tensors, dist::Group data, BufferPool& pool);

  /// Takes memory for the run.
  void fill();
  /// Begins to give it its values; to be called after fill, and finish_gather before the next use.
  void begin_gather();
  void finish_gather();
  /// Gives the memory back.
  void drain();

  const at::Tensor& run() const { return run_; }
  /// Bytes that this rank holds between uses.
  uint64_t num_bytes() const { return share_.nbytes(); }

 private:
  dist::Group data_;
  BufferPool& pool_;
  at::Tensor run_;
  at::Tensor share_;
  std::unique_ptr<dist::PendingWork> pending_;
};

}  // namespace weft::train
