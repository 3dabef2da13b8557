#include "weft/generate/prompt_lookup.h"

#include <algorithm>

namespace weft::generate {
namespace {

// Guesses begin short: a pass of a few tokens costs little more than one of one.
constexpr int64_t kFirstLength = 2;
// Tokens without a guess, at most: what is lost to wrong guesses stays under a few per cent.
constexpr int64_t kLongestPause = 63;

}  // namespace

PromptLookup::PromptLookup(std::span<const int64_t> text, int64_t most)
    : most_(most), length_(std::min(kFirstLength, most)) {
  if (most_ == 0) return;
  text_.reserve(text.size());
  for (const int64_t token : text) add(token);
}

// Two endings with one key only make a guess wrong.
uint64_t PromptLookup::key_of_end(size_t length) const {
  uint64_t key = 0;
  for (size_t i = text_.size() - length; i < text_.size(); ++i) {
    key = key * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(text_[i]) + 1;
  }
  return key;
}

void PromptLookup::add(int64_t token) {
  if (most_ == 0) return;
  // An ending is found once something follows it.
  for (size_t i = 0; i < kEndings.size(); ++i) {
    if (text_.size() >= kEndings[i]) next_of_[i][key_of_end(kEndings[i])] = text_.size();
  }
  text_.push_back(token);
}

std::vector<int64_t> PromptLookup::guess(int64_t limit) {
  std::vector<int64_t> guessed;
  if (left_of_pause_ > 0) {
    --left_of_pause_;
    return guessed;
  }
  const auto wanted = static_cast<size_t>(std::clamp<int64_t>(limit, 0, length_));
  for (size_t i = 0; i < kEndings.size() && guessed.empty(); ++i) {
    if (text_.size() < kEndings[i]) continue;
    const auto found = next_of_[i].find(key_of_end(kEndings[i]));
    if (found == next_of_[i].end()) continue;
    // At the end of the text a guess reads its own tokens: what repeats keeps repeating.
    for (size_t at = found->second; guessed.size() < wanted; ++at) {
      guessed.push_back(at < text_.size() ? text_[at] : guessed[at - text_.size()]);
    }
  }
  return guessed;
}

void PromptLookup::learn(int64_t num_guessed, int64_t num_right) {
  if (num_guessed == 0) return;
  if (num_right == 0) {
    left_of_pause_ = pause_ = std::min(kLongestPause, 2 * pause_ + 1);
    length_ = std::min(kFirstLength, most_);
    return;
  }
  pause_ = 0;
  length_ = std::min(most_, num_right == num_guessed ? 2 * length_ : num_right + 1);
}

}  // namespace weft::generate
