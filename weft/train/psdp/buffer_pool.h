#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <map>
#include <vector>

namespace weft::train {

/// Memory that units take for the time of their use, one after the other: new memory would be
/// cleared by the system each time.
class BufferPool {
 public:
  /// Gives a tensor without memory some for all of its elements, whose values are any.
  void fill(const at::Tensor& tensor);
  /// Takes it back. The tensor and its views keep their shape.
  void drain(const at::Tensor& tensor);

  /// Bytes that were taken at the same time, at most.
  size_t peak_bytes() const { return peak_bytes_; }

 private:
  std::map<size_t, std::vector<c10::DataPtr>> free_;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

}  // namespace weft::train
