#include "weft/nn/adapters/adapter_scope.h"

namespace weft::nn {
namespace {

thread_local std::span<const int64_t> current_numbers;

}  // namespace

AdapterScope::AdapterScope(std::span<const int64_t> numbers) : outer_(current_numbers) {
  if (!numbers.empty()) current_numbers = numbers;
}

AdapterScope::~AdapterScope() { current_numbers = outer_; }

std::span<const int64_t> AdapterScope::current() { return current_numbers; }

}  // namespace weft::nn
