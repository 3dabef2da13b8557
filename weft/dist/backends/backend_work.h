#pragma once

#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace weft::dist {

/// One operation of a backend of our own: done at once, or to be done by a queue.
class BackendWork : public c10d::Work {
 public:
  BackendWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs);

  /// Marks it as done, with an error or without.
  void complete(std::exception_ptr error = nullptr);

  /// Notes who sent what a receive from any source got; before complete().
  void set_source(int rank) { source_ = rank; }

  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void fulfil();

  std::vector<at::Tensor> outputs_;
  int source_ = -1;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace weft::dist
