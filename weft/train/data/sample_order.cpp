#include "weft/train/data/sample_order.h"

#include "weft/core/error.h"

namespace weft::train {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)) {
  constexpr int64_t kMaxSize = int64_t{1} << 62;
  core::check<core::ConfigError>(size >= 1 && size <= kMaxSize, "train.Permutation: expected 1 to ",
                                 kMaxSize, " numbers, got ", size);
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  for (uint64_t& round_key : round_keys_) round_key = mix(key += kGolden);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t round_key : round_keys_) {
    const uint64_t next = left ^ (mix(right + round_key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  auto value = static_cast<uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

SampleOrder::SampleOrder(int64_t num_sequences, uint64_t seed, bool is_shuffled)
    : num_sequences_(num_sequences), seed_(seed), is_shuffled_(is_shuffled) {
  static_cast<void>(Permutation(num_sequences, seed));
}

int64_t SampleOrder::operator[](int64_t index) const {
  const int64_t place = index % num_sequences_;
  if (!is_shuffled_) return place;
  const auto epoch = static_cast<uint64_t>(index / num_sequences_);
  return Permutation(num_sequences_, mix(seed_ + kGolden) ^ mix(epoch))(place);
}

}  // namespace weft::train
