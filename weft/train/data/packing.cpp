#include "weft/train/data/packing.h"

#include <algorithm>
#include <cmath>

#include "weft/core/error.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;

// A token and the one after it: anything shorter has no target.
constexpr int64_t kLeastTokens = 2;

// The document's first token that is nearest to `token`, but not the store's first.
int64_t nearest_border(const TokenStore& store, int64_t token) {
  const int64_t document = store.document_of(token);
  const shard::Range range = store.document(document);
  const bool is_last = document + 1 == store.num_documents();
  if (document == 0) return range.end();
  if (is_last) return range.start;
  return token - range.start <= range.end() - token ? range.start : range.end();
}

}  // namespace

Packer::Packer(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range)
    : store_(std::move(store)), options_(options), range_(range) {
  check<ConfigError>(options_.length >= 1, store_->path(),
                     ": sequence length: expected at least 1, got ", options_.length);
  const bool fits = range.start >= 0 && range.length >= kLeastTokens &&
                    range.start <= store_->num_tokens() - range.length;
  check<ConfigError>(fits, store_->path(), ": sequences: expected a range of at least ",
                     kLeastTokens, " of ", store_->num_tokens(), " tokens, got ", range.length,
                     " tokens from ", range.start, "; give more text");
  if (options_.packing == Packing::kAlone) {
    first_document_ = store_->document_of(range.start);
    const int64_t last = store_->document_of(range.end() - 1);
    num_sequences_ = last - first_document_ + 1;
    check<ConfigError>(store_->document(first_document_).start == range.start &&
                           store_->document(last).end() == range.end(),
                       store_->path(), ": sequences: expected a range of whole documents, got ",
                       range.length, " tokens from ", range.start, "; split between documents");
  } else {
    num_sequences_ = (range.length - 2) / options_.length + 1;
  }
}

int64_t Packer::num_cut() const {
  if (options_.packing != Packing::kAlone) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    if (source(i).length > options_.length + 1) ++count;
  }
  return count;
}

// The tokens that a sequence may be made of, one more than its length at most counting targets.
shard::Range Packer::source(int64_t index) const {
  if (options_.packing == Packing::kAlone) return store_->document(first_document_ + index);
  const int64_t start = range_.start + index * options_.length;
  return {start, std::min(options_.length + 1, range_.end() - start)};
}

void Packer::fill(int64_t index, const SequenceSpans& out) const {
  const shard::Range tokens = source(index);
  const bool is_within = options_.packing == Packing::kWithin;
  int64_t place = store_->document_of(tokens.start);
  int64_t document_end = store_->document(place).end();
  int64_t document = 0, position = 0;
  const int64_t padding = std::max<int64_t>(store_->info().end_of_text, 0);
  for (int64_t i = 0; i < options_.length; ++i, ++position) {
    const int64_t token = tokens.start + i;
    const bool is_padding = token >= tokens.end();
    if (is_within && !is_padding && token == document_end) {
      document_end = store_->document(++place).end();
      ++document;
      position = 0;
    }
    const bool has_target = token + 1 < tokens.end() && store_->is_learned(token + 1) &&
                            !(is_within && token + 1 == document_end);
    const auto at = static_cast<size_t>(i);
    out.ids[at] = is_padding ? padding : store_->token(token);
    out.targets[at] = has_target ? store_->token(token + 1) : kIgnoredTarget;
    out.documents[at] = document;
    out.positions[at] = position;
  }
}

shard::Range all_tokens(const TokenStore& store) { return {0, store.num_tokens()}; }

std::pair<shard::Range, shard::Range> split_tokens(const TokenStore& store, double fraction,
                                                   Packing packing) {
  check<ConfigError>(fraction > 0 && fraction < 1, store.path(),
                     ": evaluation fraction: expected more than 0 and less than 1, got ", fraction);
  const int64_t total = store.num_tokens();
  const auto wished = static_cast<int64_t>(std::llround(static_cast<double>(total) * fraction));
  int64_t cut = std::clamp<int64_t>(total - wished, 0, std::max<int64_t>(total - 1, 0));
  if (store.num_documents() > 1) {
    const int64_t border = nearest_border(store, cut);
    constexpr int64_t kNear = 10;
    const bool is_near = std::abs(border - cut) <= wished / kNear;
    if (is_near || packing == Packing::kAlone) cut = border;
  }
  const bool has_documents = packing != Packing::kAlone || store.num_documents() > 1;
  check<ConfigError>(has_documents && cut >= kLeastTokens && total - cut >= kLeastTokens,
                     store.path(), ": evaluation fraction: expected at least ", kLeastTokens,
                     " tokens on both sides, got ", store.num_documents(), " documents of ", total,
                     " tokens cut at ", fraction, "; give more text or an evaluation file");
  return {{0, cut}, {cut, total - cut}};
}

}  // namespace weft::train
