#pragma once

#include <ATen/Parallel.h>

namespace weft::quant {

/// libtorch's operations of this process run in one thread while it lives: the sums of a
/// decomposition or of a long row depend on the number of threads, which depends on the number of
/// ranks. Not for use by several threads at once.
class OneThread {
 public:
  OneThread() : threads_(at::get_num_threads()) { at::set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { at::set_num_threads(threads_); }

 private:
  int threads_;
};

}  // namespace weft::quant
