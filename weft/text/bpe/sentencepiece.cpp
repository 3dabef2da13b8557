#include "weft/text/bpe/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/core/error.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using core::check;
using core::FormatError;

std::string unescape_spaces(std::string_view token) {
  return replace_step(literal_finder(std::string(kSpaceMark)), " ")(std::string(token));
}

namespace {

// Tokens that text can become by merges.
bool is_mergeable(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

// Every way to cut a token in two is looked up.
void check_lengths(const Vocabulary& vocabulary, const std::string& where) {
  constexpr size_t kMaxBytes = 512;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    check<FormatError>(vocabulary.tokens[i].size() <= kMaxBytes, where, ": token ", i,
                       ": expected at most ", kMaxBytes, " bytes, got ",
                       vocabulary.tokens[i].size(), "; the file is damaged");
  }
}

void check_scores(const Vocabulary& vocabulary, const std::string& where) {
  const size_t count = vocabulary.tokens.size();
  check<FormatError>(vocabulary.scores.size() == count, where, ": token scores: expected ", count,
                     ", one per token, got ", vocabulary.scores.size(), "; the file is damaged");
  for (size_t i = 0; i < count; ++i) {
    check<FormatError>(std::isfinite(vocabulary.scores[i]), where, ": token score ", i,
                       ": expected a number, got ", vocabulary.scores[i], "; the file is damaged");
  }
}

// The place of each token's score, 0 for the best; equal scores share a place.
std::vector<int32_t> ranks_of(const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<int32_t> ranks(scores.size());
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;
    ranks[order[i]] = rank;
  }
  return ranks;
}

class MergeBuilder {
 public:
  MergeBuilder(TokenizerSpec& spec, const TokenIndex& ids) : spec_(spec), ids_(ids) {}

  void build() {
    const Vocabulary& vocabulary = spec_.vocabulary;
    spec_.model.first_part = static_cast<TokenId>(vocabulary.tokens.size());
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (is_mergeable(vocabulary.kinds[i])) add_characters(vocabulary.tokens[i]);
    }
    const std::vector<int32_t> ranks = ranks_of(vocabulary.scores);
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (is_mergeable(vocabulary.kinds[i])) add_splits(static_cast<TokenId>(i), ranks[i]);
    }
    spec_.model.merges = MergeTable(found_.size());
    for (const Found& found : found_) {
      spec_.model.merges.set(found.left, found.right, found.merge);
    }
  }

 private:
  struct Found {
    TokenId left;
    TokenId right;
    MergeTable::Merge merge;
  };

  // Characters that are no tokens can still be parts of one.
  void add_characters(std::string_view token) {
    while (!token.empty()) {
      const Utf8Step step = utf8_step(token);
      const auto fresh = static_cast<TokenId>(spec_.model.first_part + spec_.model.parts.size());
      TokenId id = token_of(token.substr(0, step.size));
      const bool is_part = id < 0;
      if (is_part) id = fresh;
      const bool is_new = spec_.model.char_ids.emplace(step.code, id).second;
      if (is_new && is_part) spec_.model.parts.push_back(step.code);
      token.remove_prefix(step.size);
    }
  }

  TokenId token_of(std::string_view text) const {
    const TokenId id = ids_.find(text);
    return id >= 0 && is_mergeable(spec_.vocabulary.kinds[id]) ? id : -1;
  }

  // The token of a part of a token, or the id of a single character that is none.
  TokenId symbol_of(std::string_view text) const {
    const Utf8Step step = utf8_step(text);
    return step.size == text.size() ? spec_.model.char_ids.at(step.code) : token_of(text);
  }

  void add_splits(TokenId id, int32_t rank) {
    const std::string_view token = spec_.vocabulary.tokens[id];
    if (token.empty()) return;
    for (size_t at = utf8_step(token).size; at < token.size();
         at += utf8_step(token.substr(at)).size) {
      const TokenId left = symbol_of(token.substr(0, at));
      const TokenId right = left < 0 ? -1 : symbol_of(token.substr(at));
      if (right >= 0) found_.push_back({left, right, {rank, id}});
    }
  }

  TokenizerSpec& spec_;
  const TokenIndex& ids_;
  std::vector<Found> found_;
};

}  // namespace

void add_marked_spaces(TokenizerSpec& spec) {
  spec.normalizer.push_back(replace_step(literal_finder(" "), std::string(kSpaceMark)));
  for (size_t i = 0; i < spec.vocabulary.tokens.size(); ++i) {
    if (spec.vocabulary.kinds[i] != TokenKind::kByte) continue;
    spec.model.byte_ids[static_cast<uint8_t>(spec.bytes[i][0])] = static_cast<TokenId>(i);
  }
}

void add_scored_bpe(TokenizerSpec& spec, const TokenIndex& ids, const std::string& where) {
  check_scores(spec.vocabulary, where);
  check_lengths(spec.vocabulary, where);
  if (spec.vocabulary.add_space_prefix) {
    spec.normalizer.push_back(prepend_step(" "));
    spec.num_stripped = 1;
  }
  add_marked_spaces(spec);
  MergeBuilder(spec, ids).build();
}

}  // namespace weft::text
