#include "weft/text/bpe/spelling_trie.h"

namespace weft::text {

void SpellingTrie::add(std::string_view spelling, int32_t id) {
  uint32_t node = 0;
  for (size_t i = 0; i < spelling.size(); ++i) {
    const Node fresh{static_cast<uint32_t>(edges_.size() + 1), -1};
    Node& next = edges_.try_emplace(edge(node, spelling[i]), fresh).first->second;
    if (i + 1 == spelling.size() && next.id < 0) next.id = id;
    node = next.index;
  }
}

SpellingTrie::Match SpellingTrie::longest(std::string_view text) const {
  Match best;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto it = edges_.find(edge(node, text[i]));
    if (it == edges_.end()) break;
    if (it->second.id >= 0) best = {i + 1, it->second.id};
    node = it->second.index;
  }
  return best;
}

}  // namespace weft::text
