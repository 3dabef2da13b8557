#pragma once

#include <array>
#include <cstdint>

namespace weft::train {

/// A permutation of the numbers below `size` that a key chooses: no table, any element at once. A
/// Feistel network on the next even number of bits, walked until it is below `size` again (Black
/// and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
class Permutation {
 public:
  /// `size` from 1 to 2^62. Throws ConfigError.
  Permutation(int64_t size, uint64_t key);

  /// The image of `index`, which is below the size. Less than 4 walks are expected.
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kNumRounds = 8;
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  int half_bits_ = 1;
  std::array<uint64_t, kNumRounds> round_keys_ = {};
};

/// Which sequence the i-th sample of a run is. It depends on the seed and the number of sequences
/// alone, so all meshes see the same samples in the same order: step s of batch size B has the
/// samples [s*B, (s+1)*B), whichever rank takes which of them, and a run that has consumed n
/// samples resumes at sample n. Each epoch has each sequence once, in an order of its own; a batch
/// at an epoch's end continues into the next.
class SampleOrder {
 public:
  /// Throws ConfigError for less than 1 or more than 2^62 sequences.
  SampleOrder(int64_t num_sequences, uint64_t seed, bool is_shuffled = true);

  /// The sequence of sample `index` >= 0.
  int64_t operator[](int64_t index) const;

 private:
  int64_t num_sequences_;
  uint64_t seed_;
  bool is_shuffled_;
};

}  // namespace weft::train
