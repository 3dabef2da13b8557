#include "weft/serve/engine/prefix_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weft/core/sha256.h"
#include "weft/serve/engine/step_plan.h"

namespace weft::serve {

PrefixCache::PrefixCache(PrefixCacheOptions options)
    : options_(std::move(options)), root_(core::sha256(options_.model)) {}

std::vector<PieceKey> PrefixCache::keys_of(std::span<const int64_t> prompt, int64_t adapter) const {
  std::vector<PieceKey> keys;
  if (options_.num_pages == 0) return keys;
  // What a prompt begins with is longer than what another piece does, so no two messages are one.
  const PieceKey root =
      root_ + std::string(reinterpret_cast<const char*>(&adapter), sizeof adapter);
  for (size_t begin = 0; begin + kPieceTokens <= prompt.size(); begin += kPieceTokens) {
    const auto bytes = std::as_bytes(prompt.subspan(begin, kPieceTokens));
    std::string message = keys.empty() ? root : keys.back();
    message.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    keys.push_back(core::sha256(message));
  }
  return keys;
}

std::optional<int64_t> PrefixCache::find(const PieceKey& key) const {
  const auto found = places_.find(key);
  if (found == places_.end()) return std::nullopt;
  return found->second->page;
}

// The first piece becomes the most recent one, so that it outlives those behind it.
void PrefixCache::use(std::span<const PieceKey> keys) {
  for (auto place = keys.rbegin(); place != keys.rend(); ++place) {
    const auto found = places_.find(*place);
    if (found != places_.end()) entries_.splice(entries_.begin(), entries_, found->second);
  }
}

std::optional<int64_t> PrefixCache::free_page(std::span<const PieceKey> keys) {
  if (state_.num_pages < options_.num_pages) return state_.num_pages++;
  const Entry& oldest = entries_.back();
  if (std::ranges::find(keys, oldest.key) != keys.end()) return std::nullopt;
  const int64_t page = oldest.page;
  places_.erase(oldest.key);
  entries_.pop_back();
  ++state_.num_evicted;
  return page;
}

std::optional<int64_t> PrefixCache::add(std::span<const PieceKey> keys) {
  if (options_.num_pages == 0) return std::nullopt;
  const auto before = keys.first(keys.size() - 1);
  const bool is_reachable =
      std::ranges::all_of(before, [this](const PieceKey& key) { return places_.contains(key); });
  if (!is_reachable || places_.contains(keys.back())) return std::nullopt;
  use(before);
  const auto page = free_page(before);
  if (!page) return std::nullopt;
  entries_.push_front({keys.back(), *page});
  places_.emplace(keys.back(), entries_.begin());
  use(before);
  return page;
}

}  // namespace weft::serve
