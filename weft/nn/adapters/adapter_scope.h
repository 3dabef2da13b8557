#pragma once

#include <cstdint>
#include <span>

namespace weft::nn {

/// While one lives, the sequences of this thread's passes use adapters of these numbers: one for
/// all of them, or one for each, in their order. Number 0, which holds without a scope, is what a
/// model has for sequences that ask for nothing else. They nest.
class AdapterScope {
 public:
  /// `numbers` must outlive this; none: as the scope around it.
  explicit AdapterScope(std::span<const int64_t> numbers);
  AdapterScope(const AdapterScope&) = delete;
  AdapterScope& operator=(const AdapterScope&) = delete;
  ~AdapterScope();

  /// The innermost's; empty without one.
  static std::span<const int64_t> current();
  /// The number that all sequences have. Throws InternalError for several.
  static int64_t only();

 private:
  std::span<const int64_t> outer_;
};

}  // namespace weft::nn
