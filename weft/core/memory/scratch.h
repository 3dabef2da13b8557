#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "weft/core/memory/new_memory.h"

namespace weft::core {

/// Room for numbers that are overwritten each time, in core::new_memory. It only grows, so that
/// a caller that uses it repeatedly allocates memory once.
template <class Number>
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  /// Room for `count` numbers, whose values are any if it was smaller. Throws IoError if there is
  /// no memory.
  Number* make_room(int64_t count) {
    if (count > size_) {
      memory_ = nullptr;
      memory_ = new_memory(static_cast<uint64_t>(count) * sizeof(Number));
      size_ = count;
    }
    return data();
  }
  Number* data() const { return reinterpret_cast<Number*>(memory_.get()); }

 private:
  std::shared_ptr<std::byte> memory_;
  int64_t size_ = 0;
};

}  // namespace weft::core
