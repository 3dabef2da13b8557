#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/models/model.h"
#include "weft/models/reads_by_layers.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/logits/largest.h"
#include "weft/serve/engine/step_plan.h"

namespace weft::serve {

/// What is known of a part, until the runner's next step; which, its plan says.
struct PartScores {
  /// At least as many as its plan wants (nn::largest).
  std::span<const nn::Largest> likeliest = {};
  /// The token that is drawn, and its sum (nn::largest_gumbel_sum).
  std::span<const nn::Largest> drawn = {};
  /// Of the whole vocabulary.
  std::span<const float> logits = {};
  /// As wide as the model.
  std::span<const float> hidden = {};
  /// Of how many of the part's tokens, the last ones, these are, end to end.
  size_t num_rows = 1;

  /// Of one of them.
  PartScores row(size_t index) const {
    const auto of_row = [&](auto all) {
      return all.subspan(index * (all.size() / num_rows), all.size() / num_rows);
    };
    return {of_row(likeliest), of_row(drawn), of_row(logits), hidden};
  }
};

/// Runs steps of several sequences through a model that is cut over ranks. Sequences' last tokens
/// go through the model together, with guesses of what follows them, each longer part by itself,
/// also in several steps: a sequence's numbers are the same, bit for bit, whatever others are in
/// its steps.
class StepRunner {
 public:
  /// `context`: the most positions of a sequence; `slots`: the most sequences. Not collective.
  /// Throws ConfigError unless the model has as many positions.
  StepRunner(std::shared_ptr<models::CausalLM> model, int64_t context, int64_t slots);

  /// From now on slots take memory in pieces of kPieceTokens positions as they need them, instead
  /// of for a context each. Not for longrope, whose angles follow a cache's size. Not collective.
  void take_memory_in_pieces() { in_pieces_ = true; }

  /// One element for each part. Collective: all ranks pass the same plan, in which a page that is
  /// stored has at most the number of those that were stored before it.
  std::vector<PartScores> run(const StepPlan& plan);

  /// What the last step took.
  const StepTimes& times() const { return times_; }

  /// Layers that a part's tokens may go through in several steps; 1 where they go through all of
  /// them at once. The same on all ranks. Not collective.
  int64_t num_layers() const;
  /// The most tokens of a part whose numbers are those of parts of one token each, bit for bit; the
  /// same on all ranks. Not collective.
  int64_t most_as_alone() const;
  /// What a page takes on all ranks together: keys and values of kPieceTokens positions.
  /// Collective.
  int64_t page_bytes() const;
  /// What a sequence takes beside them, recurrent layers' states, on all ranks together.
  /// Collective.
  int64_t state_bytes() const;

  const dist::Group& group() const { return model_->group(); }
  const models::CausalLM& model() const { return *model_; }
  int64_t context() const { return context_; }
  int64_t num_slots() const { return std::ssize(caches_); }
  /// Slots that have memory.
  int64_t num_used_slots() const;
  /// Pages whose memory has been taken.
  int64_t num_pages() const { return std::ssize(pages_); }

 private:
  nn::KvCache& cache_of(int64_t slot, int64_t length, int64_t more);
  int64_t cache_bytes(int64_t capacity) const;
  void load(const PageCopy& copy);
  void store(const PageCopy& copy);
  at::Tensor read_each(const at::Tensor& ids_B, const std::vector<nn::KvCache*>& caches,
                       const std::vector<int64_t>& adapters);
  void read_tokens(const StepPlan& plan);
  at::Tensor read_layers(const StepPart& part, const at::Tensor& ids_1T, nn::KvCache& cache);
  void read_piece(const StepPart& part, size_t index);
  void score(const StepPlan& plan, Wanted wanted, std::vector<PartScores>& scores);
  void tell_hidden(const StepPlan& plan, std::vector<PartScores>& scores);

  std::shared_ptr<models::CausalLM> model_;
  int64_t context_;
  bool in_pieces_ = false;
  /// Of each slot, once it is used.
  std::vector<std::unique_ptr<nn::KvCache>> caches_;
  /// Of each slot, what has been begun of its part.
  std::vector<std::unique_ptr<models::LayeredRead>> begun_;
  StepTimes times_;
  /// One piece each, from the first page that was used on.
  std::vector<nn::KvCache> pages_;
  /// Of the step's parts: the hidden states of the last token and of guesses before it, [N, 1, D].
  std::vector<at::Tensor> last_N1D_;
  /// Of parts whose hidden states are wanted.
  std::vector<at::Tensor> hidden_D_;
  at::Tensor logits_BV_;
  std::vector<nn::Largest> likeliest_;
  std::vector<nn::Largest> drawn_;
};

}  // namespace weft::serve
