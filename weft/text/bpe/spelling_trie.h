#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace weft::text {

/// Finds the longest of many spellings at a place in a text.
class SpellingTrie {
 public:
  struct Match {
    size_t size = 0;
    int32_t id = -1;
  };

  /// Adds a spelling; an empty one is never found, and of equal ones the first counts.
  void add(std::string_view spelling, int32_t id);
  /// The longest spelling that `text` begins with; id -1 if none.
  Match longest(std::string_view text) const;

 private:
  struct Node {
    uint32_t index;
    int32_t id;
  };
  static uint64_t edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }

  std::unordered_map<uint64_t, Node> edges_;
};

}  // namespace weft::text
