#include "weft/quant/code_stream.h"

#include <array>
#include <cstring>
#include <utility>

#include "weft/quant/affine_reference.h"

namespace weft::quant {
namespace {

constexpr size_t kRun = 8;

// The bytes' lowest bits side by side: neighbours join into runs of twice as many bits.
template <unsigned kBits>
uint64_t join_bytes(uint64_t x) {
  x = (x & 0x00FF00FF00FF00FFU) | (x & 0xFF00FF00FF00FF00U) >> (8 - kBits);
  x = (x & 0x0000FFFF0000FFFFU) | (x & 0xFFFF0000FFFF0000U) >> (16 - 2 * kBits);
  return (x & 0x00000000FFFFFFFFU) | (x & 0xFFFFFFFF00000000U) >> (32 - 4 * kBits);
}

// The other way; bits above eight codes are ignored.
template <unsigned kBits>
uint64_t part_bytes(uint64_t x) {
  constexpr uint64_t kFour = (uint64_t{1} << (4 * kBits)) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001U;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001U;
  x = (x & kFour) | (x >> (4 * kBits) & kFour) << 32;
  x = (x & kTwo) | (x >> (2 * kBits) & kTwo) << 16;
  return (x & kOne) | (x >> kBits & kOne) << 8;
}

template <unsigned kBits>
void pack_runs(const uint8_t* codes, uint8_t* packed, size_t runs) {
  for (size_t i = 0; i < runs; ++i, codes += kRun, packed += kBits) {
    uint64_t run = 0;
    std::memcpy(&run, codes, kRun);
    run = join_bytes<kBits>(run);
    std::memcpy(packed, &run, kBits);
  }
}

template <unsigned kBits>
void unpack_runs(const uint8_t* packed, uint8_t* codes, size_t runs) {
  for (size_t i = 0; i < runs; ++i, codes += kRun, packed += kBits) {
    uint64_t run = 0;
    std::memcpy(&run, packed, kBits);
    run = part_bytes<kBits>(run);
    std::memcpy(codes, &run, kRun);
  }
}

template <unsigned... kBits>
constexpr auto pack_table(std::integer_sequence<unsigned, kBits...>) {
  return std::array{pack_runs<kBits + 1>...};
}
template <unsigned... kBits>
constexpr auto unpack_table(std::integer_sequence<unsigned, kBits...>) {
  return std::array{unpack_runs<kBits + 1>...};
}
// By bits - 1.
constexpr auto kPackRuns = pack_table(std::make_integer_sequence<unsigned, 8>());
constexpr auto kUnpackRuns = unpack_table(std::make_integer_sequence<unsigned, 8>());

}  // namespace

void pack_codes(std::span<const uint8_t> codes, int64_t bits, std::span<uint8_t> packed) {
  const auto width = static_cast<size_t>(bits);
  const size_t runs = codes.size() / kRun;
  kPackRuns.at(width - 1)(codes.data(), packed.data(), runs);
  reference::pack(codes.subspan(runs * kRun), bits, packed.subspan(runs * width));
}

void unpack_codes(std::span<const uint8_t> packed, int64_t bits, std::span<uint8_t> codes) {
  const auto width = static_cast<size_t>(bits);
  const size_t runs = codes.size() / kRun;
  kUnpackRuns.at(width - 1)(packed.data(), codes.data(), runs);
  reference::unpack(packed.subspan(runs * width), bits, codes.subspan(runs * kRun));
}

}  // namespace weft::quant
