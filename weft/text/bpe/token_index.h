#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/text/bpe/bpe.h"

namespace weft::text {

/// Ids of tokens by their spellings, which outlive the index. One table without nodes: a
/// vocabulary's merges ask it several times for each of its tokens.
class TokenIndex {
 public:
  /// Holds `most` tokens.
  explicit TokenIndex(size_t most);

  /// Adds a token; returns -1, or the id that has this spelling already, which stays.
  TokenId add(std::string_view spelling, TokenId id);
  /// The id of a spelling, or -1.
  TokenId find(std::string_view spelling) const;

 private:
  struct Place {
    uint32_t hash = 0;
    TokenId id = -1;
    std::string_view spelling;
  };
  // The place that has the spelling, or the free one for it.
  size_t place_of(std::string_view spelling, uint32_t hash) const;

  std::vector<Place> places_;
};

}  // namespace weft::text
