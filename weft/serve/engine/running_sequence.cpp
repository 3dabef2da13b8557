#include "weft/serve/engine/running_sequence.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "weft/core/error.h"

namespace weft::serve {
namespace {

// More of the likeliest tokens take as long as the logits of all.
constexpr int64_t kMostLikeliest = 512;

}  // namespace

RunningSequence::RunningSequence(uint64_t number, SequenceRequest request, SequenceSink sink,
                                 const text::Tokenizer& tokenizer, int64_t most_guesses)
    : number_(number),
      request_(std::move(request)),
      sink_(std::move(sink)),
      sampler_(request_.options.generate.sampler),
      stream_(tokenizer, request_.options),
      most_guesses_(request_.pooling ? 0 : most_guesses) {}

bool RunningSequence::begin(std::vector<PieceKey> keys) {
  keys_ = std::move(keys);
  if (std::exchange(has_begun_, true)) return false;
  sampler_.begin(request_.prompt);
  if (most_guesses_ > 0) lookup_.emplace(request_.prompt, most_guesses_);
  return true;
}

void RunningSequence::lose_slot() {
  most_read_ = std::max(most_read_, num_read_);
  num_read_ = num_layers_read_ = 0;
  sum_.clear();
}

int64_t RunningSequence::num_known() const {
  return std::ssize(request_.prompt) + std::max<int64_t>(num_drawn() - 1, 0);
}

int64_t RunningSequence::num_held() const {
  if (num_layers_read_ == 0) return num_read_;
  return std::min((num_read_ / kPieceTokens + 1) * kPieceTokens, std::ssize(request_.prompt));
}

std::span<const PieceKey> RunningSequence::keys_to(int64_t start) const {
  const auto count = static_cast<size_t>(start / kPieceTokens + 1);
  return std::span(keys_).first(std::min(count, keys_.size()));
}

const PieceKey* RunningSequence::next_key() const {
  const auto index = static_cast<size_t>(num_read_ / kPieceTokens);
  const bool has_last_token = num_read_ + kPieceTokens >= std::ssize(request_.prompt);
  // Pages have no hidden states, of which a mean needs all.
  const bool is_wanted = has_last_token || request_.pooling == Pooling::kMean;
  return index < keys_.size() && !is_wanted ? &keys_[index] : nullptr;
}

void RunningSequence::skip_piece() {
  num_layers_read_ = 0;
  num_read_ += kPieceTokens;
  if (num_read_ > most_read_) num_reused_ += kPieceTokens;
}

Wanted RunningSequence::wanted() const {
  if (request_.pooling == Pooling::kLast) return Wanted::kHidden;
  if (request_.pooling == Pooling::kMean) return Wanted::kHiddenSum;
  if (request_.options.generate.num_logprobs >= 0) return Wanted::kLogits;
  if (sampler_.next_draw()) return Wanted::kDrawn;
  const int64_t likeliest = sampler_.num_likeliest();
  return likeliest == 0 || likeliest > kMostLikeliest ? Wanted::kLogits : Wanted::kLikeliest;
}

StepPart RunningSequence::next_part(int64_t slot, int64_t most_at_once) const {
  const auto& prompt = request_.prompt;
  const int64_t num_prompt = std::ssize(prompt);
  StepPart part{slot, num_read_, Wanted::kNothing, {}, request_.adapter};
  if (num_read_ >= num_prompt) {
    const int64_t first = num_read_ - num_prompt;
    const int64_t count = reads_known() ? std::min(num_known() - num_read_, most_at_once) : 1;
    part.tokens.assign(drawn_.begin() + first, drawn_.begin() + first + count);
    if (!reads_known()) want(part);
    return part;
  }
  const int64_t end = std::min((num_read_ / kPieceTokens + 1) * kPieceTokens, num_prompt);
  part.tokens.assign(prompt.begin() + num_read_, prompt.begin() + end);
  const bool is_last = end == num_prompt && drawn_.empty();
  if (is_last || request_.pooling == Pooling::kMean) want(part);
  return part;
}

void RunningSequence::add_guesses(int64_t limit, int64_t context, StepPart& part) {
  if (!lookup_) return;
  // Reading the last token and guesses yields one token more than there are guesses.
  const int64_t room =
      std::min(request_.options.generate.max_tokens - num_drawn(), context - num_read_) - 1;
  const std::vector<int64_t> guesses = lookup_->guess(std::min(limit, room));
  part.num_guessed = std::ssize(guesses);
  part.tokens.insert(part.tokens.end(), guesses.begin(), guesses.end());
  want(part);
}

void RunningSequence::want(StepPart& part) const {
  part.wanted = wanted();
  if (part.wanted == Wanted::kDrawn) part.draw = *sampler_.next_draw();
  if (part.wanted != Wanted::kLikeliest) return;
  part.num_likeliest = sampler_.num_likeliest();
  // For a token that is drawn the sampler counts up to two more that penalties change.
  if (sampler_.needs_logits()) part.num_likeliest += 2 * part.num_guessed;
}

// Throws ConfigError if the logits are none.
int64_t RunningSequence::draw(Wanted wanted, const PartScores& scores, SequenceEvent& event) {
  if (wanted == Wanted::kLikeliest) return sampler_.sample_likeliest(scores.likeliest);
  if (wanted == Wanted::kDrawn) return sampler_.take_drawn(scores.drawn.front());
  const int64_t token = sampler_.sample(scores.logits);
  if (request_.options.generate.num_logprobs >= 0) {
    event.token =
        generate::logprobs_of(scores.logits, token, request_.options.generate.num_logprobs);
  }
  return token;
}

// True if it was the last one.
bool RunningSequence::take_token(int64_t token, int64_t context, SequenceEvent& event) {
  drawn_.push_back(token);
  const generate::TextStream::Step step = stream_.push(token);
  event.text = step.text;
  if (step.verdict == generate::Verdict::kStop) {
    event.end = SequenceEnd::kStop;
    // A token that ends the text is no part of it.
    if (step.text.empty()) event.token.reset();
    // What could have begun a stop text hasn't.
    event.text += stream_.finish();
    return true;
  }
  const bool is_full = num_read_ >= context;
  if (num_drawn() < request_.options.generate.max_tokens && !is_full) return false;
  event.text += stream_.finish();
  event.end = SequenceEnd::kLength;
  return true;
}

// True once the prompt has been read. Throws ConfigError if the numbers are none.
bool RunningSequence::take_hidden(std::span<const float> hidden, SequenceEvent& event) {
  sum_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) sum_[i] += hidden[i];
  if (reads_known()) return false;
  const double squares = std::inner_product(sum_.begin(), sum_.end(), sum_.begin(), 0.0);
  core::check<core::ConfigError>(std::isfinite(squares) && squares > 0,
                                 "serve: the model's hidden states, expected finite numbers; its "
                                 "weights are damaged");
  for (const double each : sum_) {
    event.embedding.push_back(static_cast<float>(each / std::sqrt(squares)));
  }
  event.end = SequenceEnd::kStop;
  return true;
}

// Row i follows guess i - 1: it is drawn from only if all guesses before it were. The state of the
// cache behind a wrong one is forgotten by the next part's start.
bool RunningSequence::take_tokens(const StepPart& part, const PartScores& scores, int64_t context) {
  const auto guesses = std::span(part.tokens).last(static_cast<size_t>(part.num_guessed));
  bool is_over = false, is_right = true;
  size_t row = 0;
  for (; is_right && !is_over; ++row) {
    if (row > 0) ++num_read_;
    SequenceEvent event;
    is_over = take_token(draw(part.wanted, scores.row(row), event), context, event);
    if (lookup_) lookup_->add(drawn_.back());
    tell(event);
    is_right = row < guesses.size() && drawn_.back() == guesses[row];
  }
  if (lookup_) lookup_->learn(part.num_guessed, static_cast<int64_t>(row) - 1);
  return is_over;
}

bool RunningSequence::take(const StepPart& part, const PartScores& scores, int64_t context) {
  num_layers_read_ = part.is_whole() ? 0 : part.first_layer + part.num_layers;
  if (!part.is_whole()) return false;
  num_read_ += std::ssize(part.tokens) - part.num_guessed;
  if (part.wanted == Wanted::kNothing) return false;
  try {
    if (!request_.pooling) return take_tokens(part, scores, context);
    SequenceEvent event;
    const bool is_over = take_hidden(scores.hidden, event);
    tell(event);
    return is_over;
  } catch (const core::Error& error) {
    end(SequenceEnd::kFailed, error.what());
    return true;
  }
}

void RunningSequence::end(SequenceEnd end, const std::string& error) {
  SequenceEvent event;
  event.end = end;
  event.error = error;
  tell(event);
}

void RunningSequence::tell(SequenceEvent& event) {
  event.num_reused = num_reused_;
  event.num_drawn = num_drawn();
  sink_(event);
}

}  // namespace weft::serve
