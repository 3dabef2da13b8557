#include "weft/text/bpe/token_index.h"

#include <bit>
#include <functional>

namespace weft::text {
namespace {

uint32_t hash_of(std::string_view spelling) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(spelling));
}

}  // namespace

TokenIndex::TokenIndex(size_t most) : places_(std::bit_ceil(2 * most + 1)) {}

size_t TokenIndex::place_of(std::string_view spelling, uint32_t hash) const {
  const size_t mask = places_.size() - 1;
  size_t at = hash & mask;
  while (places_[at].id >= 0 && (places_[at].hash != hash || places_[at].spelling != spelling)) {
    at = (at + 1) & mask;
  }
  return at;
}

TokenId TokenIndex::add(std::string_view spelling, TokenId id) {
  const uint32_t hash = hash_of(spelling);
  Place& place = places_[place_of(spelling, hash)];
  if (place.id >= 0) return place.id;
  place = {hash, id, spelling};
  return -1;
}

TokenId TokenIndex::find(std::string_view spelling) const {
  return places_[place_of(spelling, hash_of(spelling))].id;
}

}  // namespace weft::text
