#include "weft/train/data/store/token_store.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "weft/core/checked.h"
#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/train/data/store/store_format.h"

namespace weft::train {
namespace {

using core::check;
using core::FormatError;
using namespace store_format;

constexpr char kRemedy[] = "; delete the file, so that it is made anew";

std::string_view text_at(std::span<const std::byte> bytes, size_t offset, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()) + offset, size};
}

uint64_t number_at(std::span<const std::byte> bytes, size_t offset) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// Begins the parts one after another; stays at nothing once a size does not fit 64 bits.
class Parts {
 public:
  /// Where a part of `count` elements begins.
  uint64_t add(uint64_t count, uint64_t bytes_each) {
    const uint64_t begin = end_.value_or(0);
    const auto size = core::checked_mul(count, bytes_each);
    end_ = size && end_ ? core::checked_add(*end_, *size) : std::nullopt;
    if (end_) end_ = core::checked_align_up(*end_, kAlignment);
    return begin;
  }
  std::optional<uint64_t> end() const { return end_; }

 private:
  std::optional<uint64_t> end_ = kStartBytes;
};

template <class T>
std::span<const T> part(std::span<const std::byte> bytes, uint64_t offset, uint64_t count) {
  return {reinterpret_cast<const T*>(bytes.data() + offset), count};
}

}  // namespace

bool TokenStore::is_store(const std::string& path) {
  try {
    const core::File file(path);
    std::string start(kStart.size(), '\0');
    if (file.size() < start.size()) return false;
    file.read_at(0, std::as_writable_bytes(std::span(start)));
    return start == kStart;
  } catch (const FormatError&) {
    return false;
  }
}

TokenStore::TokenStore(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  check<FormatError>(bytes.size() >= kStart.size() && text_at(bytes, 0, kStart.size()) == kStart,
                     path, ": expected a token store, which begins with ", kStart,
                     ", got a file that does not; name another file");
  check<FormatError>(bytes.size() >= kStartBytes + kEndBytes, path,
                     ": expected a token store of at least ", kStartBytes + kEndBytes,
                     " bytes, got ", bytes.size(), kRemedy);
  const uint64_t version = number_at(bytes, kStart.size());
  check<FormatError>(version == kVersion, path, ": expected a token store of version ", kVersion,
                     ", got ", version, kRemedy);
  read_info();
  find_parts();
  check_documents();
}

std::shared_ptr<const TokenStore> TokenStore::open(const std::string& path) {
  return std::shared_ptr<const TokenStore>(new TokenStore(path));
}

void TokenStore::read_info() {
  const auto end = file_.bytes().last(kEndBytes);
  check<FormatError>(text_at(end, kEndBytes - kEnd.size(), kEnd.size()) == kEnd, path(),
                     ": truncated: expected ", kEnd, " at the end, got something else", kRemedy);
  Numbers numbers = {};
  std::memcpy(numbers.data(), end.data(), sizeof numbers);
  check<FormatError>(hash(numbers) == number_at(end, sizeof numbers), path(),
                     ": damaged: expected that the sizes at the end have the hash behind them",
                     kRemedy);
  info_ = from_numbers(numbers);
  constexpr uint64_t kMaxVocabulary = uint64_t{1} << 31;
  check<FormatError>(info_.vocab_size > 0 && info_.vocab_size <= kMaxVocabulary, path(),
                     ": vocabulary: expected 1 to ", kMaxVocabulary, " tokens, got ",
                     info_.vocab_size, kRemedy);
  check<FormatError>(info_.has_mask <= 1, path(), ": mask: expected 0 or 1, got ", info_.has_mask,
                     kRemedy);
  check<FormatError>(
      info_.end_of_text >= -1 && info_.end_of_text < static_cast<int64_t>(info_.vocab_size), path(),
      ": end-of-text: expected -1 to ", info_.vocab_size - 1, ", got ", info_.end_of_text, kRemedy);
}

void TokenStore::find_parts() {
  const auto bytes = file_.bytes();
  Parts parts;
  const uint64_t tokens = parts.add(info_.num_tokens, info_.token_bytes());
  // Division first: a number of tokens near 2^64 must not wrap.
  const uint64_t num_mask_bytes = info_.num_tokens / 8 + (info_.num_tokens % 8 != 0 ? 1 : 0);
  const uint64_t mask = parts.add(info_.has_mask != 0 ? num_mask_bytes : 0, 1);
  const uint64_t documents = parts.add(info_.num_documents, sizeof(uint64_t));
  check<FormatError>(parts.end() == bytes.size() - kEndBytes, path(), ": expected a file of ",
                     info_.num_tokens, " tokens of ", info_.token_bytes(), " bytes and ",
                     info_.num_documents, " documents, got one of ", bytes.size(), " bytes",
                     kRemedy);
  if (info_.token_bytes() == sizeof(uint16_t)) {
    short_tokens_ = part<uint16_t>(bytes, tokens, info_.num_tokens);
  } else {
    long_tokens_ = part<uint32_t>(bytes, tokens, info_.num_tokens);
  }
  if (info_.has_mask != 0) mask_ = part<uint8_t>(bytes, mask, num_mask_bytes);
  documents_ = part<uint64_t>(bytes, documents, info_.num_documents);
}

void TokenStore::check_documents() const {
  check<FormatError>(documents_.empty() == (info_.num_tokens == 0), path(), ": expected ",
                     info_.num_tokens == 0 ? "no" : "some", " documents for ", info_.num_tokens,
                     " tokens, got ", info_.num_documents, kRemedy);
  uint64_t least = 0;
  for (size_t i = 0; i < documents_.size(); ++i) {
    const bool fits =
        (i == 0 ? documents_[i] == 0 : documents_[i] >= least) && documents_[i] < info_.num_tokens;
    check<FormatError>(fits, path(), ": document ", i, ": expected that it begins at token ", least,
                       i == 0 ? "" : " or behind", " of ", info_.num_tokens, ", got ",
                       documents_[i], kRemedy);
    least = documents_[i] + 1;
  }
}

uint64_t TokenStore::identity() const { return hash(to_numbers(info_)); }

int64_t TokenStore::token(int64_t index) const {
  const auto place = static_cast<size_t>(index);
  const int64_t id =
      long_tokens_.empty() ? int64_t{short_tokens_[place]} : int64_t{long_tokens_[place]};
  check<FormatError>(id < vocab_size(), path(), ": token ", index, ": expected an id below ",
                     vocab_size(), ", got ", id, kRemedy);
  return id;
}

bool TokenStore::is_learned(int64_t index) const {
  return mask_.empty() || ((mask_[static_cast<size_t>(index / 8)] >> (index % 8)) & 1) != 0;
}

shard::Range TokenStore::document(int64_t index) const {
  const auto place = static_cast<size_t>(index);
  const uint64_t end = place + 1 < documents_.size() ? documents_[place + 1] : info_.num_tokens;
  return {static_cast<int64_t>(documents_[place]), static_cast<int64_t>(end - documents_[place])};
}

int64_t TokenStore::document_of(int64_t token) const {
  const auto behind =
      std::upper_bound(documents_.begin(), documents_.end(), static_cast<uint64_t>(token));
  return behind - documents_.begin() - 1;
}

}  // namespace weft::train
