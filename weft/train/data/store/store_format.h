#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/core/hash.h"
#include "weft/train/data/store/token_store.h"

/// The parts of a token store's file: what its reader and its writer share.
namespace weft::train::store_format {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

inline constexpr std::string_view kStart = "wefttoks";
inline constexpr std::string_view kEnd = "wefttoke";
inline constexpr uint64_t kVersion = 1;
inline constexpr uint64_t kAlignment = 8;
/// Start and version; numbers, hash and end.
inline constexpr uint64_t kStartBytes = 16;
inline constexpr uint64_t kNumNumbers = 7;
inline constexpr uint64_t kEndBytes = (kNumNumbers + 2) * 8;

/// StoreInfo as the file has it.
using Numbers = std::array<uint64_t, kNumNumbers>;

/// In the file's order.
inline Numbers to_numbers(const StoreInfo& info) {
  return {info.vocab_size,
          info.num_tokens,
          info.num_documents,
          info.has_mask,
          info.tokenizer_hash,
          info.sources_hash,
          static_cast<uint64_t>(info.end_of_text)};
}

/// The inverse of to_numbers.
inline StoreInfo from_numbers(const Numbers& numbers) {
  return {numbers[0],
          numbers[1],
          numbers[2],
          numbers[3],
          numbers[4],
          numbers[5],
          static_cast<int64_t>(numbers[6])};
}

/// What follows them.
inline uint64_t hash(const Numbers& numbers) {
  return core::hash_bytes(std::as_bytes(std::span(numbers)));
}

}  // namespace weft::train::store_format
