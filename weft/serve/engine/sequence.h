#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/generate/logprobs.h"
#include "weft/generate/options.h"

// What a client wants of one sequence and what it is told: no tensors, so that what answers clients
// needs none.
namespace weft::serve {

/// How a text becomes one vector: the hidden state of its last token, which alone has seen all
/// others, or the mean of all.
enum class Pooling { kLast, kMean };

/// One sequence to continue, or to make a vector of.
struct SequenceRequest {
  /// At least one token, all of the vocabulary.
  std::vector<int64_t> prompt;
  generate::TextOptions options;
  /// How many of the likeliest tokens to tell with each one, and its own probability; -1: neither.
  int64_t num_logprobs = -1;
  /// Who asks: those who run least go first.
  size_t client = 0;
  /// Given: the sequence ends with its prompt, and its vector is told.
  std::optional<Pooling> pooling = {};
  /// Which of the model's adapters it uses (nn::AdapterScope).
  int64_t adapter = 0;
};

/// Why a sequence ended. kFailed: `SequenceEvent::error` says why.
enum class SequenceEnd { kStop, kLength, kCancelled, kFailed };

/// What a step brought to a sequence.
struct SequenceEvent {
  /// Whole characters, often none.
  std::string text;
  /// With probabilities asked for: the token of this step, unless it ended the text.
  std::optional<generate::DrawnToken> token;
  /// In the last event.
  std::optional<SequenceEnd> end;
  std::string error;
  /// In the last event of one with a pooling: of length 1.
  std::vector<float> embedding = {};
  /// Tokens of the prompt that were read for an earlier sequence, and tokens drawn so far.
  int64_t num_reused = 0;
  int64_t num_drawn = 0;
};

/// Sees a sequence's events in order, on the thread that runs the steps; it must not wait.
using SequenceSink = std::function<void(const SequenceEvent& event)>;

}  // namespace weft::serve
