#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "weft/serve/engine/prefix_cache.h"
#include "weft/serve/engine/sequence.h"
#include "weft/serve/engine/step_pace.h"
#include "weft/serve/engine/step_plan.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::serve {

struct PartScores;
class RunningSequence;

/// What a server keeps and does at once.
struct SchedulerOptions {
  /// The most positions of a sequence.
  int64_t context = 4096;
  /// The most sequences that run at once.
  int64_t slots = 8;
  /// Once so many sequences of a client wait, no more of its are taken.
  int64_t max_queue = 128;
  /// The most tokens of a step, at least kPieceTokens more than slots: every running sequence's
  /// next one, then pieces of prompts as far as there is room, the oldest prompt's first.
  int64_t step_tokens = 512;
  /// StepRunner::num_layers. Where it is more than 1, prompts are read by a few layers a step while
  /// other sequences' tokens are drawn, so that these come at most so many times as slowly as
  /// without (StepPace); 0: however long prompts take.
  int64_t num_layers = 1;
  double max_slowdown = 0;
  /// The most pieces of kPieceTokens positions that running sequences keep together, at least those
  /// of one context; 0: as many as there are slots for.
  int64_t kv_pieces = 0;
  /// What a sequence takes of these beside its positions: recurrent layers' states.
  int64_t state_pieces = 0;
  /// How many drawn tokens a sequence that has lost its slot reads at once, and how many last
  /// tokens of sequences a step reads with guesses: at most StepRunner::most_as_alone.
  int64_t most_as_alone = 1;
  /// How many tokens are guessed at a time, 0 to generate::kMostGuesses.
  int64_t speculate = 0;
  /// Keys and values of prompts that are kept for others.
  PrefixCacheOptions prefix = {};
};

/// What a slot is doing.
struct SlotState {
  /// Of its sequence; 0: none, and the rest means nothing.
  uint64_t number = 0;
  int64_t num_prompt = 0;
  /// Positions that are kept, and those of them that pages had.
  int64_t num_kept = 0;
  int64_t num_reused = 0;
  int64_t num_drawn = 0;
};

/// What a scheduler is doing, for those who watch it.
struct SchedulerState {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  /// Positions that are kept of running sequences, of context * slots.
  int64_t num_kept = 0;
  /// How often a sequence lost its slot to an older one.
  int64_t num_preempted = 0;
  /// Tokens that were guessed, and those of them that became answers'.
  int64_t num_guessed = 0;
  int64_t num_guessed_right = 0;
  /// How long the step takes that runs now; 0: none.
  double step_seconds = 0;
  bool is_draining = false;
  PrefixCacheState prefix = {};
  std::vector<SlotState> slots = {};
};

/// Decides, on rank 0 alone, what each step does: sequences wait until a slot is free, those of the
/// client first of whose fewest run, and of one client's the oldest; they read their prompts and
/// are continued until they end or are cancelled. Whole pieces of a prompt are read once and kept
/// in pages; for prompts that begin alike they are copied. Where running sequences may keep no more
/// positions, the youngest loses its slot to an older one that needs them, waits again, and later
/// reads all of its tokens anew; its answer has the same bits. `submit`, `cancel`, `drain` and
/// `state` may be called on any thread, the others on one.
class Scheduler {
 public:
  /// `tokenizer` turns tokens to text. Throws ConfigError for options out of range.
  Scheduler(const SchedulerOptions& options, text::Tokenizer tokenizer);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues sequences of one client, all or none, and returns their numbers; none if too many of
  /// its wait, or once it drains. Throws ConfigError as generate::TextStream and generate::Sampler,
  /// for an empty prompt and for one that leaves no room in the context.
  std::optional<std::vector<uint64_t>> submit(
      std::vector<std::pair<SequenceRequest, SequenceSink>> sequences);
  /// Ends a sequence before the next step, if it has not ended; its sink sees kCancelled.
  void cancel(uint64_t number);
  /// Takes no more sequences; those that were taken go on.
  void drain();
  SchedulerState state() const;

  /// The next step's plan; one without parts where nothing is to do for that long. After drain()
  /// the last plan ends.
  StepPlan next_plan(std::chrono::milliseconds most);
  /// Takes what a plan's step has given, and what it took, and tells the sinks.
  void take(const StepPlan& plan, const std::vector<PartScores>& scores, const StepTimes& times);
  /// Ends all sequences, those that wait as well, with `error`; kCancelled if it is empty.
  void end_all(const std::string& error);

  const SchedulerOptions& options() const { return options_; }

 private:
  using Slot = std::unique_ptr<RunningSequence>;
  /// What a step that is planned has room for: tokens of any kind, and of them guesses.
  struct TokensLeft {
    int64_t any, guesses;
  };
  /// Who reads a piece in the step that is planned, and how much: tokens times the layers that they
  /// go through.
  struct Readers {
    std::vector<int64_t> slots;
    int64_t layer_tokens = 0;
  };

  void take_cancelled();
  void fill_slots();
  Slot take_next();
  int64_t pieces_with_state(int64_t positions) const;
  bool fits(const RunningSequence& waiting) const;
  int64_t youngest() const;
  int64_t kept_pieces() const;
  bool make_room(int64_t slot, int64_t tokens);
  int64_t room_for_guesses(int64_t slot) const;
  void preempt(int64_t slot);
  void free_slot(int64_t slot);
  StepPlan make_plan();
  void add_last(int64_t slot, StepPlan& plan, TokensLeft& left);
  Readers readers_among(const std::vector<int64_t>& running);
  void add_piece(int64_t slot, int64_t layer_tokens, std::set<PieceKey>& being_read, StepPlan& plan,
                 int64_t& left);
  void take_layers(const RunningSequence& sequence, int64_t layer_tokens, StepPart& part) const;
  bool load_pages(int64_t slot, const std::set<PieceKey>& being_read, StepPlan& plan);
  void note_state();

  SchedulerOptions options_;
  text::Tokenizer tokenizer_;
  /// Only for the thread of the steps.
  std::vector<Slot> slots_;
  /// Positions that each slot's sequence keeps after the step that is planned.
  std::vector<int64_t> planned_;
  /// Slots whose sequences have gone since the last plan, if that frees memory.
  std::vector<int64_t> freed_;
  PrefixCache prefixes_;
  StepPace pace_;
  /// Of two that read in turns, whether it is the one with less to read.
  bool is_shorter_next_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<RunningSequence>> queue_;
  std::vector<uint64_t> cancelled_;
  uint64_t last_number_ = 0;
  SchedulerState state_;
  std::optional<std::chrono::steady_clock::time_point> step_start_;
};

}  // namespace weft::serve
