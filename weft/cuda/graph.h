#pragma once

#include <functional>
#include <memory>

namespace weft::cuda {

/// A run of kernels that was recorded once and begins as one: what takes a processor microseconds
/// for each kernel takes it so once for all.
class Graph {
 public:
  /// Records what `run` would do; nothing runs. It must neither copy nor take memory.
  explicit Graph(const std::function<void()>& run);
  /// Begins it, with the values that its memory holds by then.
  void launch() const;

 private:
  struct Recorded;
  std::shared_ptr<Recorded> recorded_;
};

}  // namespace weft::cuda
