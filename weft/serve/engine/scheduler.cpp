#include "weft/serve/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

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
  check_range("num_layers", options.num_layers, 1, kMost);
  check<ConfigError>(options.max_slowdown == 0 || options.max_slowdown > 1, kScheduler,
                     ": max_slowdown: ", options.max_slowdown, ", expected 0 or more than 1");
  check_range("speculate", options.speculate, 0, generate::kMostGuesses);
  check_range("step_tokens", options.step_tokens, options.slots + kPieceTokens, kMost);
  if (options.kv_pieces != 0) {
    const int64_t least = options.state_pieces + pieces_of(options.context);
    check_range("kv_pieces", options.kv_pieces, least, int64_t{1} << 40);
  }
  return options;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, text::Tokenizer tokenizer)
    : options_(checked_options(options)),
      tokenizer_(std::move(tokenizer)),
      slots_(static_cast<size_t>(options.slots)),
      planned_(static_cast<size_t>(options.slots)),
      prefixes_(options.prefix),
      pace_(options.num_layers, options.max_slowdown) {}

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
  const bool is_full =
      !sequences.empty() && std::ranges::count(queue_, sequences.front().first.client,
                                               &RunningSequence::client) >= options_.max_queue;
  if (state_.is_draining || is_full) return std::nullopt;
  for (auto& [request, sink] : sequences) {
    made.push_back(std::make_unique<RunningSequence>(
        last_number_ + 1, std::move(request), std::move(sink), tokenizer_, options_.speculate));
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
  for (int64_t i = 0; i < options_.slots; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    if (std::ranges::find(cancelled, slot->number()) == cancelled.end()) continue;
    slot->end(SequenceEnd::kCancelled, "");
    free_slot(i);
  }
}

void Scheduler::free_slot(int64_t slot) {
  slots_[static_cast<size_t>(slot)].reset();
  if (options_.kv_pieces != 0) freed_.push_back(slot);
}

// What a sequence takes that keeps so many positions.
int64_t Scheduler::pieces_with_state(int64_t positions) const {
  return positions == 0 ? 0 : options_.state_pieces + pieces_of(positions);
}

// Whether a sequence that waits has room for all that it is known to read and the token after it,
// beside those that run; alone it always has.
bool Scheduler::fits(const RunningSequence& waiting) const {
  if (options_.kv_pieces == 0) return true;
  const auto wanted = [&](const RunningSequence& sequence) {
    const int64_t positions = std::max(sequence.num_read(), sequence.num_known()) + 1;
    return pieces_with_state(std::min(positions, options_.context));
  };
  int64_t pieces = 0;
  for (const Slot& slot : slots_) {
    if (slot != nullptr) pieces += wanted(*slot);
  }
  return pieces == 0 || pieces + wanted(waiting) <= options_.kv_pieces;
}

// Null where nothing waits, or what comes next has no room.
Scheduler::Slot Scheduler::take_next() {
  std::map<size_t, int64_t> num_running;
  for (const Slot& slot : slots_) {
    if (slot != nullptr) ++num_running[slot->client()];
  }
  const std::lock_guard lock(mutex_);
  const auto next = std::ranges::min_element(queue_, {}, [&](const Slot& waiting) {
    const auto found = num_running.find(waiting->client());
    return found == num_running.end() ? 0 : found->second;
  });
  if (next == queue_.end() || !fits(**next)) return nullptr;
  Slot taken = std::move(*next);
  queue_.erase(next);
  return taken;
}

void Scheduler::fill_slots() {
  for (Slot& slot : slots_) {
    if (slot != nullptr) continue;
    slot = take_next();
    if (slot == nullptr) return;
    const bool is_first = slot->begin(prefixes_.keys_of(slot->prompt(), slot->adapter()));
    if (is_first) prefixes_.count_asked(std::ssize(slot->prompt()));
  }
}

// The slot of the sequence that came last; there is one.
int64_t Scheduler::youngest() const {
  const auto number_of = [](const Slot& slot) {
    return slot == nullptr ? uint64_t{0} : slot->number();
  };
  return std::ranges::max_element(slots_, {}, number_of) - slots_.begin();
}

// It waits before all that are younger.
void Scheduler::preempt(int64_t slot) {
  Slot lost = std::move(slots_[static_cast<size_t>(slot)]);
  lost->lose_slot();
  free_slot(slot);
  const std::lock_guard lock(mutex_);
  const auto place = std::ranges::find_if(
      queue_, [&](const Slot& waiting) { return waiting->number() > lost->number(); });
  queue_.insert(place, std::move(lost));
  ++state_.num_preempted;
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

void Scheduler::take(const StepPlan& plan, const std::vector<PartScores>& scores,
                     const StepTimes& times) {
  pace_.note(plan, times);
  int64_t num_guessed = 0, num_right = 0;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const StepPart& part = plan.parts[i];
    Slot& slot = slots_[static_cast<size_t>(part.slot)];
    const int64_t drawn = slot->num_drawn();
    const bool is_over = slot->take(part, scores[i], options_.context);
    num_guessed += part.num_guessed;
    num_right += std::max<int64_t>(slot->num_drawn() - drawn - 1, 0);
    if (is_over) free_slot(part.slot);
  }
  const std::lock_guard lock(mutex_);
  state_.num_guessed += num_guessed;
  state_.num_guessed_right += num_right;
  step_start_.reset();
}

void Scheduler::end_all(const std::string& error) {
  const SequenceEnd end = error.empty() ? SequenceEnd::kCancelled : SequenceEnd::kFailed;
  std::deque<std::unique_ptr<RunningSequence>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(queue_);
  }
  for (const auto& sequence : waiting) sequence->end(end, error);
  for (int64_t i = 0; i < options_.slots; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    slot->end(end, error);
    free_slot(i);
  }
}

void Scheduler::note_state() {
  const std::lock_guard lock(mutex_);
  state_.num_running = state_.num_kept = 0;
  state_.slots.assign(slots_.size(), {});
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot == nullptr) continue;
    state_.slots[i] = {slot->number(), std::ssize(slot->prompt()), slot->num_read(),
                       slot->num_reused(), slot->num_drawn()};
    ++state_.num_running;
    state_.num_kept += slot->num_read();
  }
  state_.prefix = prefixes_.state();
  if (state_.num_running > 0) step_start_ = Clock::now();
}

}  // namespace weft::serve
