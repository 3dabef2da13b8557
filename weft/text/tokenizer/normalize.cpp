#include "weft/text/tokenizer/normalize.h"

#include <algorithm>
#include <vector>

#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

// Hangul syllables are composed by a formula (Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

template <class Entry>
const Entry* find_code(std::span<const Entry> table, char32_t code) {
  const auto it =
      std::lower_bound(table.begin(), table.end(), code,
                       [](const Entry& entry, char32_t value) { return entry.code < value; });
  return it != table.end() && it->code == code ? &*it : nullptr;
}

int mark_rank(char32_t code) {
  const MarkRank* entry = find_code(kMarkRanks, code);
  return entry == nullptr ? 0 : entry->rank;
}

struct Item {
  char32_t code;
  int rank;
};

void add_parts(const Decomposition& entry, std::span<const char32_t> parts,
               std::vector<Item>& out) {
  for (const char32_t part : parts.subspan(entry.begin, entry.size)) {
    out.push_back({part, mark_rank(part)});
  }
}

void decompose(char32_t code, bool is_compatible, std::vector<Item>& out) {
  if (code - kSyllables < kSyllableCount) {
    const char32_t index = code - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0});
    if (index % kTailCount != 0) out.push_back({kTails + index % kTailCount, 0});
    return;
  }
  const Decomposition* compatible = is_compatible ? find_code(kCompatibilities, code) : nullptr;
  if (compatible != nullptr) {
    add_parts(*compatible, kCompatible, out);
    return;
  }
  if (const Decomposition* entry = find_code(kDecompositions, code)) {
    add_parts(*entry, kDecomposed, out);
    return;
  }
  out.push_back({code, mark_rank(code)});
}

void sort_marks(std::vector<Item>& items) {
  for (auto begin = items.begin(); begin != items.end();) {
    if (begin->rank == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, items.end(), [](const Item& item) { return item.rank == 0; });
    std::stable_sort(begin, end, [](const Item& a, const Item& b) { return a.rank < b.rank; });
    begin = end;
  }
}

// The code point that the two compose to, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  const bool open_syllable =
      first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0;
  if (open_syllable && second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  const auto less = [](const Composition& entry, std::pair<char32_t, char32_t> key) {
    return std::pair(entry.first, entry.second) < key;
  };
  const auto it =
      std::lower_bound(kCompositions.begin(), kCompositions.end(), std::pair(first, second), less);
  if (it == kCompositions.end() || it->first != first || it->second != second) return 0;
  return it->code;
}

// Composes in place: a character joins the last starter unless one between them blocks it.
void compose(std::vector<Item>& items) {
  size_t out = 0;
  size_t starter = items.size();
  int last_rank = -1;
  for (const Item item : std::vector<Item>(items)) {
    if (starter < out && last_rank < item.rank) {
      if (const char32_t joined = compose_pair(items[starter].code, item.code)) {
        items[starter].code = joined;
        continue;
      }
    }
    if (item.rank == 0) {
      starter = out;
      last_rank = -1;
    } else {
      last_rank = item.rank;
    }
    items[out++] = item;
  }
  items.resize(out);
}

std::vector<Item> decomposed(std::string_view text, bool is_compatible) {
  std::vector<Item> items;
  items.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    decompose(step.code, is_compatible, items);
    rest.remove_prefix(step.size);
  }
  sort_marks(items);
  return items;
}

std::string to_text(const std::vector<Item>& items) {
  std::string out;
  out.reserve(items.size());
  for (const Item& item : items) append_utf8(out, item.code);
  return out;
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  // Everything below U+0300 is its own normal form, and so is ASCII next to anything unmarked.
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
  if (plain) return std::string(text);
  std::vector<Item> items = decomposed(text, false);
  compose(items);
  return to_text(items);
}

std::string normalize_nfd(std::string_view text) { return to_text(decomposed(text, false)); }

std::string normalize_nfkc(std::string_view text) {
  std::vector<Item> items = decomposed(text, true);
  compose(items);
  return to_text(items);
}

std::string normalize_nfkd(std::string_view text) { return to_text(decomposed(text, true)); }

}  // namespace weft::text
