#include "weft/train/data/store/token_store_writer.h"

#include <algorithm>

#include "weft/core/error.h"
#include "weft/train/data/store/store_format.h"

namespace weft::train {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr uint64_t kMaxVocabulary = uint64_t{1} << 31;

}  // namespace

TokenStoreWriter::TokenStoreWriter(const std::string& path, uint64_t vocab_size,
                                   uint64_t expected_bytes)
    : file_(path, expected_bytes) {
  core::check<core::ConfigError>(vocab_size > 0 && vocab_size <= kMaxVocabulary, path,
                                 ": vocabulary: expected 1 to ", kMaxVocabulary, " tokens, got ",
                                 vocab_size, "; use another tokenizer");
  info_.vocab_size = vocab_size;
  write(store_format::kStart.data(), store_format::kStart.size());
  write(&store_format::kVersion, sizeof store_format::kVersion);
}

void TokenStoreWriter::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

void TokenStoreWriter::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  buffer_.insert(buffer_.end(), bytes, bytes + size);
  written_ += size;
  if (buffer_.size() >= kBufferBytes) flush();
}

void TokenStoreWriter::align() {
  constexpr uint64_t kZeros = 0;
  const uint64_t over = written_ % store_format::kAlignment;
  if (over != 0) write(&kZeros, store_format::kAlignment - over);
}

void TokenStoreWriter::add_bit(bool is_learned) {
  const uint64_t place = info_.num_tokens % 8;
  if (place == 0) mask_.push_back(0);
  if (is_learned) mask_.back() |= static_cast<uint8_t>(1U << place);
}

void TokenStoreWriter::add(const std::vector<text::TokenId>& ids,
                           const std::vector<bool>& is_learned) {
  core::check<core::InternalError>(is_learned.empty() || is_learned.size() == ids.size(),
                                   "train.TokenStoreWriter: ", ids.size(), " ids with ",
                                   is_learned.size(), " mask values");
  if (ids.empty()) return;
  if (!is_open_) documents_.push_back(info_.num_tokens);
  is_open_ = true;
  const bool has_ignored =
      std::find(is_learned.begin(), is_learned.end(), false) != is_learned.end();
  if (has_ignored && info_.has_mask == 0) {
    // All tokens so far are learned; bits after the last one stay 0.
    info_.has_mask = 1;
    mask_.assign(info_.num_tokens / 8, 0xFF);
    const auto rest = static_cast<unsigned>(info_.num_tokens % 8);
    if (rest != 0) mask_.push_back(static_cast<uint8_t>((1U << rest) - 1));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<uint32_t>(ids[i]);
    core::check<core::ConfigError>(id < info_.vocab_size, "train.TokenStoreWriter: token ",
                                   info_.num_tokens, ": expected an id below ", info_.vocab_size,
                                   ", got ", ids[i], "; use the tokenizer's own ids");
    // The low bytes come first.
    write(&id, info_.token_bytes());
    if (info_.has_mask != 0) add_bit(is_learned.empty() || is_learned[i]);
    ++info_.num_tokens;
  }
}

void TokenStoreWriter::finish(uint64_t tokenizer_hash, uint64_t sources_hash,
                              text::TokenId end_of_text) {
  align();
  write(mask_.data(), mask_.size());
  align();
  write(documents_.data(), documents_.size() * sizeof(uint64_t));
  info_.num_documents = documents_.size();
  info_.tokenizer_hash = tokenizer_hash;
  info_.sources_hash = sources_hash;
  info_.end_of_text = end_of_text;
  const store_format::Numbers numbers = store_format::to_numbers(info_);
  const uint64_t hash = store_format::hash(numbers);
  write(numbers.data(), sizeof numbers);
  write(&hash, sizeof hash);
  write(store_format::kEnd.data(), store_format::kEnd.size());
  flush();
  file_.commit();
}

}  // namespace weft::train
