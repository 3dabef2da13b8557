#include "weft/serve/engine/scheduler.h"

#include <algorithm>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/serve/engine/running_sequence.h"

namespace weft::serve {
namespace {

using core::check;
using core::ConfigError;
using Clock = std::chrono::steady_clock;

constexpr const char* kScheduler = "serve.Scheduler";

SchedulerOptions checked_options(const SchedulerOptions& options) {
  const auto check_range = [](const char* name, int64_t value, int64_t low, int64_t high) {
    check<ConfigError>(value >= low && value <= high, kScheduler, ": ", name, ": ", value,
                       ", expected ", low, " to ", high);
  };
  constexpr int64_t kMost = 1 << 20;
  check_range("context", options.context, 1, kMost);
  check_range("slots", options.slots, 1, 1024);
  check_range("max_queue", options.max_queue, 1, kMost);
  check_range("step_tokens", options.step_tokens, options.slots + kPieceTokens, kMost);
  return options;
}

// How many tokens of `prompt` a slot with these pieces need not read: whole pieces, but never its
// last token, as what follows it is wanted.
int64_t num_shared(const std::vector<int64_t>& pieces, const std::vector<int64_t>& prompt) {
  const auto most = std::min(pieces.size(), prompt.size() - 1);
  const auto differ =
      std::mismatch(pieces.begin(), pieces.begin() + static_cast<int64_t>(most), prompt.begin());
  return (differ.first - pieces.begin()) / kPieceTokens * kPieceTokens;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, text::Tokenizer tokenizer)
    : options_(checked_options(options)),
      tokenizer_(std::move(tokenizer)),
      slots_(static_cast<size_t>(options.slots)) {}

Scheduler::~Scheduler() = default;

std::optional<std::vector<uint64_t>> Scheduler::submit(
    std::vector<std::pair<SequenceRequest, SequenceSink>> sequences) {
  for (const auto& [request, sink] : sequences) {
    const int64_t tokens = std::ssize(request.prompt);
    check<ConfigError>(tokens >= 1, kScheduler, ": an empty prompt, expected at least one token");
    check<ConfigError>(tokens <= options_.context, kScheduler, ": ", tokens,
                       " tokens of prompt, expected at most ", options_.context);
  }
  std::vector<std::unique_ptr<RunningSequence>> made;
  std::vector<uint64_t> numbers;
  const std::lock_guard lock(mutex_);
  const auto waiting = std::ssize(queue_) + std::ssize(sequences);
  if (state_.is_draining || waiting > options_.max_queue) return std::nullopt;
  for (auto& [request, sink] : sequences) {
    made.push_back(std::make_unique<RunningSequence>(last_number_ + 1, std::move(request),
                                                     std::move(sink), tokenizer_));
    numbers.push_back(++last_number_);
  }
  std::ranges::move(made, std::back_inserter(queue_));
  changed_.notify_one();
  return numbers;
}

void Scheduler::cancel(uint64_t number) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(number);
  changed_.notify_one();
}

void Scheduler::drain() {
  const std::lock_guard lock(mutex_);
  state_.is_draining = true;
  changed_.notify_one();
}

SchedulerState Scheduler::state() const {
  const std::lock_guard lock(mutex_);
  SchedulerState state = state_;
  state.num_waiting = std::ssize(queue_);
  if (step_start_) state.step_seconds = core::seconds_since(*step_start_);
  return state;
}

void Scheduler::take_cancelled() {
  std::vector<uint64_t> cancelled;
  std::vector<std::unique_ptr<RunningSequence>> ended;
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
    for (const uint64_t number : cancelled) {
      const auto found = std::ranges::find(queue_, number, &RunningSequence::number);
      if (found == queue_.end()) continue;
      ended.push_back(std::move(*found));
      queue_.erase(found);
    }
  }
  for (const auto& sequence : ended) sequence->end(SequenceEnd::kCancelled, "");
  for (Slot& slot : slots_) {
    if (slot.sequence == nullptr) continue;
    if (std::ranges::find(cancelled, slot.sequence->number()) == cancelled.end()) continue;
    slot.sequence->end(SequenceEnd::kCancelled, "");
    release(slot);
  }
}

// Of the free slots the one that saves most, and of those the one that was used least recently.
Scheduler::Slot& Scheduler::best_slot(const std::vector<int64_t>& prompt) {
  Slot* best = nullptr;
  int64_t most = -1;
  for (Slot& slot : slots_) {
    if (slot.sequence != nullptr) continue;
    const int64_t shared = num_shared(slot.pieces, prompt);
    if (shared < most || (shared == most && slot.last_use >= best->last_use)) continue;
    most = shared;
    best = &slot;
  }
  return *best;
}

void Scheduler::fill_slots() {
  const std::lock_guard lock(mutex_);
  auto free = std::ranges::count_if(slots_, [](const Slot& s) { return s.sequence == nullptr; });
  for (; free > 0 && !queue_.empty(); --free) {
    auto sequence = std::move(queue_.front());
    queue_.pop_front();
    Slot& slot = best_slot(sequence->prompt());
    const int64_t shared = num_shared(slot.pieces, sequence->prompt());
    slot.pieces.resize(static_cast<size_t>(shared));
    slot.last_use = ++uses_;
    sequence->begin(shared);
    slot.sequence = std::move(sequence);
  }
}

StepPlan Scheduler::make_plan() const {
  StepPlan plan;
  int64_t left = options_.step_tokens;
  std::vector<std::pair<uint64_t, StepPart>> pieces;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const RunningSequence* const sequence = slots_[i].sequence.get();
    if (sequence == nullptr) continue;
    StepPart part = sequence->next_part(static_cast<int64_t>(i));
    if (sequence->reads_prompt()) {
      pieces.emplace_back(sequence->number(), std::move(part));
    } else {
      plan.parts.push_back(std::move(part));
      --left;
    }
  }
  std::ranges::sort(pieces, {}, &std::pair<uint64_t, StepPart>::first);
  for (auto& [number, part] : pieces) {
    const int64_t tokens = std::ssize(part.tokens);
    if (tokens > left) break;
    left -= tokens;
    plan.parts.push_back(std::move(part));
  }
  return plan;
}

StepPlan Scheduler::next_plan(std::chrono::milliseconds most) {
  take_cancelled();
  fill_slots();
  StepPlan plan = make_plan();
  note_state();
  if (!plan.parts.empty()) return plan;
  std::unique_lock lock(mutex_);
  const auto is_wanted = [&] {
    return !queue_.empty() || !cancelled_.empty() || state_.is_draining;
  };
  changed_.wait_for(lock, most, is_wanted);
  plan.ends = state_.is_draining && queue_.empty();
  return plan;
}

void Scheduler::take(const StepPlan& plan, const std::vector<PartScores>& scores) {
  for (size_t i = 0; i < plan.parts.size(); ++i) take_part(plan.parts[i], scores[i]);
  const std::lock_guard lock(mutex_);
  step_start_.reset();
}

void Scheduler::take_part(const StepPart& part, const PartScores& scores) {
  Slot& slot = slots_[static_cast<size_t>(part.slot)];
  const bool is_whole_piece = slot.sequence->reads_prompt() &&
                              std::ssize(part.tokens) == kPieceTokens &&
                              part.start % kPieceTokens == 0;
  if (is_whole_piece) {
    slot.pieces.insert(slot.pieces.end(), part.tokens.begin(), part.tokens.end());
  }
  if (slot.sequence->take(part, scores, options_.context)) release(slot);
}

void Scheduler::release(Slot& slot) {
  slot.sequence.reset();
  slot.last_use = ++uses_;
}

void Scheduler::end_all(const std::string& error) {
  const SequenceEnd end = error.empty() ? SequenceEnd::kCancelled : SequenceEnd::kFailed;
  std::deque<std::unique_ptr<RunningSequence>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(queue_);
  }
  for (const auto& sequence : waiting) sequence->end(end, error);
  for (Slot& slot : slots_) {
    if (slot.sequence == nullptr) continue;
    slot.sequence->end(end, error);
    release(slot);
  }
}

void Scheduler::note_state() {
  const std::lock_guard lock(mutex_);
  state_.num_running = state_.num_kept = 0;
  for (const Slot& slot : slots_) {
    if (slot.sequence == nullptr) continue;
    ++state_.num_running;
    state_.num_kept += slot.sequence->num_read();
  }
  if (state_.num_running > 0) step_start_ = Clock::now();
}

}  // namespace weft::serve
