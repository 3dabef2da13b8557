#include "weft/nn/adapters/adapter_scope.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

thread_local std::span<const int64_t> current_numbers;

}  // namespace

AdapterScope::AdapterScope(std::span<const int64_t> numbers) : outer_(current_numbers) {
  if (!numbers.empty()) current_numbers = numbers;
}

AdapterScope::~AdapterScope() { current_numbers = outer_; }

std::span<const int64_t> AdapterScope::current() { return current_numbers; }

int64_t AdapterScope::only() {
  if (current_numbers.empty()) return 0;
  const int64_t number = current_numbers.front();
  core::check<core::InternalError>(
      std::ranges::all_of(current_numbers, [&](int64_t each) { return each == number; }),
      "nn.AdapterScope: sequences with several adapters, expected one for all");
  return number;
}

}  // namespace weft::nn
