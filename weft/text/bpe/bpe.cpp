#include "weft/text/bpe/bpe.h"

#include <algorithm>
#include <bit>

namespace weft::text {
namespace {

uint64_t pair_key(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t count) {
  const size_t size = std::bit_ceil(std::max<size_t>(count * 2, 16));
  slots_.resize(size);
  shift_ = 64 - std::countr_zero(size);
}

size_t MergeTable::place_of(uint64_t key) const {
  // Fibonacci hashing spreads the ids, which are dense and small.
  size_t place = key * 0x9E3779B97F4A7C15u >> shift_;
  while (slots_[place].key != key && slots_[place].key != kEmpty) {
    place = (place + 1) & (slots_.size() - 1);
  }
  return place;
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  slots_[place_of(key)] = {key, merge};
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  return slots_[place_of(pair_key(left, right))].merge;
}

void BpeMerger::load(std::span<const TokenId> ids) {
  symbols_.clear();
  heap_.clear();
  for (const TokenId id : ids) {
    const auto index = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({id, index - 1, index + 1});
  }
  if (!symbols_.empty()) symbols_.back().next = -1;
}

namespace {

// std's heaps keep the largest on top, so "worse" comes first.
constexpr auto kWorse = [](const auto& a, const auto& b) {
  return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.left > b.left;
};

}  // namespace

void BpeMerger::offer(int32_t left) {
  if (left < 0 || symbols_[left].next < 0) return;
  const TokenId left_id = symbols_[left].id, right_id = symbols_[symbols_[left].next].id;
  const MergeTable::Merge merge = merges_.find(left_id, right_id);
  if (merge.rank < 0) return;
  heap_.push_back({merge, left, left_id, right_id});
}

void BpeMerger::apply(const Candidate& candidate) {
  Symbol& left = symbols_[candidate.left];
  if (left.id != candidate.left_id || left.next < 0) return;
  Symbol& right = symbols_[left.next];
  if (right.id != candidate.right_id) return;
  left.id = candidate.merge.result;
  right.id = -1;
  left.next = right.next;
  if (left.next >= 0) symbols_[left.next].previous = candidate.left;
  for (const int32_t changed : {left.previous, candidate.left}) {
    const size_t before = heap_.size();
    offer(changed);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), kWorse);
  }
}

void BpeMerger::merge(std::span<const TokenId> ids, std::vector<TokenId>& out) {
  load(ids);
  if (symbols_.empty()) return;
  for (size_t i = 0; i < symbols_.size(); ++i) offer(static_cast<int32_t>(i));
  std::make_heap(heap_.begin(), heap_.end(), kWorse);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), kWorse);
    const Candidate candidate = heap_.back();
    heap_.pop_back();
    apply(candidate);
  }
  for (int32_t i = 0; i >= 0; i = symbols_[i].next) out.push_back(symbols_[i].id);
}

}  // namespace weft::text
