#pragma once

#include <array>
#include <cstdint>

namespace weft::nn {

/// What Philox's rounds multiply by, and what they add to the key.
inline constexpr std::array<uint64_t, 2> kPhiloxFactors = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<uint32_t, 2> kPhiloxSteps = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

/// Philox 4x32-10: 128 random bits for a counter and a key, with no state between calls, so that
/// any element of a random tensor can be computed by itself. Source: Salmon et al. 2011, "Parallel
/// random numbers: as easy as 1, 2, 3", doi:10.1145/2063384.2063405, section 3.3 and table 2.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = kPhiloxFactors[0] * counter[0];
    const uint64_t second = kPhiloxFactors[1] * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kPhiloxSteps[0];
    key[1] += kPhiloxSteps[1];
  }
  return counter;
}

/// Two numbers of 53 bits in [0, 1) for the `index`-th pair of the stream (seed, stream).
inline std::array<double, 2> uniform_pair(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto bits = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                           {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const auto unit = [](uint32_t low, uint32_t high) {
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
  };
  return {unit(bits[0], bits[1]), unit(bits[2], bits[3])};
}

}  // namespace weft::nn
