#include "weft/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

bool starts_with(std::string_view text, uint16_t mask) {
  return !text.empty() && (unicode_class(utf8_step(text).code) & mask) != 0;
}

// Where the last character begins.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool ends_with(std::string_view text, uint16_t mask) {
  return !text.empty() && starts_with(text.substr(last_character(text)), mask);
}

size_t spaces_begin(std::string_view text) {
  while (ends_with(text, kSpace)) text = text.substr(0, last_character(text));
  return text.size();
}

size_t spaces_end(std::string_view text, size_t at) {
  while (at < text.size() && starts_with(text.substr(at), kSpace)) {
    at += utf8_step(text.substr(at)).size;
  }
  return at;
}

size_t common_size(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

}  // namespace

void Stretches::add(size_t size, bool is_template) {
  if (size == 0) return;
  const size_t begin = list_.empty() ? 0 : list_.back().end;
  if (!list_.empty() && list_.back().is_template == is_template) {
    list_.back().end = begin + size;
  } else {
    list_.push_back({begin + size, is_template});
  }
}

size_t Stretches::index_of(size_t at) const {
  const auto it =
      std::upper_bound(list_.begin(), list_.end(), at,
                       [](size_t value, const Stretch& stretch) { return value < stretch.end; });
  return static_cast<size_t>(it - list_.begin());
}

Stretches Stretches::slice(size_t begin, size_t end) const {
  Stretches out;
  for (size_t i = index_of(begin); begin < end; ++i) {
    const size_t stop = std::min(end, list_[i].end);
    out.add(stop - begin, list_[i].is_template);
    begin = stop;
  }
  return out;
}

Stretches Stretches::normalized(std::string_view text,
                                const std::function<std::string(std::string)>& normalize) const {
  const std::string whole = normalize(std::string(text));
  Stretches out;
  size_t done = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    const bool is_last = i + 1 == list_.size();
    const std::string part = is_last ? whole : normalize(std::string(text.substr(0, list_[i].end)));
    // Up to where the parts agree the border is sure; beyond, everything counts as typed.
    const size_t sure = common_size(part, whole);
    const size_t end = list_[i].is_template ? sure : std::max(part.size(), sure);
    const size_t stop = std::clamp(end, done, whole.size());
    out.add(stop - done, list_[i].is_template);
    done = stop;
  }
  out.add(whole.size() - done, false);
  return out;
}

void AddedTokenFinder::add(const std::string& pattern, const AddedToken& token) {
  trie_.add(pattern, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  has_guarded_ = has_guarded_ || token.is_guarded;
}

bool AddedTokenFinder::is_allowed(const AddedToken& token, std::string_view text,
                                  const TextSpan& span) const {
  if (!token.is_single_word) return true;
  return !ends_with(text.substr(0, span.begin), kWord) &&
         !starts_with(text.substr(span.end), kWord);
}

// The token at `at`, if any; else `skip` is how far the search moves on.
AddedTokenFinder::Found AddedTokenFinder::find_at(std::string_view text, size_t at,
                                                  const Stretches& stretches, size_t& skip) const {
  SpellingTrie::Match match = trie_.longest(text.substr(at));
  skip = 1;
  if (match.id < 0) return {};
  const size_t stretch_end = stretches.end(at);
  const bool is_template = stretches.is_template(at);
  const auto is_typed = [&] {
    return tokens_[match.id].is_guarded && (!is_template || at + match.size > stretch_end);
  };
  // Text that a user typed after it must not keep the template's own token from being found.
  if (is_typed() && is_template) match = trie_.longest(text.substr(at, stretch_end - at));
  if (match.id < 0) return {};
  const AddedToken& token = tokens_[match.id];
  if (!is_typed() && is_allowed(token, text, {at, at + match.size})) return {&token, match.size};
  // A spelling that does not count is skipped as a whole, but never beyond what was typed.
  skip = std::min(match.size, stretch_end - at);
  return {};
}

std::vector<AddedSpan> AddedTokenFinder::cut(std::string_view text,
                                             const Stretches& stretches) const {
  std::vector<AddedSpan> spans;
  size_t plain = 0, spaces = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t skip = 1;
    const Found found = find_at(text, at, stretches, skip);
    if (found.token == nullptr) {
      at += skip;
      continue;
    }
    TextSpan span{at, at + found.size};
    at = span.end;
    if (found.token->strips_left && span.begin > plain) {
      span.begin = plain + spaces_begin(text.substr(plain, span.begin - plain));
    }
    if (found.token->strips_right) {
      // Tokens of white space may lie inside the run that one before them took along.
      if (span.end > spaces) spaces = spaces_end(text, span.end);
      span.end = std::max(span.end, spaces);
    }
    if (plain < span.begin) spans.push_back({{plain, span.begin}, -1});
    spans.push_back({span, found.token->id});
    plain = span.end;
  }
  if (plain < text.size()) spans.push_back({{plain, text.size()}, -1});
  return spans;
}

}  // namespace weft::text
