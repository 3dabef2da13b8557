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

// After the step that is planned.
int64_t Scheduler::kept_pieces() const {
  int64_t pieces = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr) continue;
    pieces += pieces_with_state(std::max(slots_[i]->num_read(), planned_[i]));
  }
  return pieces;
}

// Whether the slot's sequence may keep so many more positions in the step that is planned; younger
// ones, of which nothing is planned yet, lose their slots for it.
bool Scheduler::make_room(int64_t slot, int64_t tokens) {
  const auto index = static_cast<size_t>(slot);
  const int64_t before = slots_[index]->num_read();
  const int64_t more = pieces_with_state(before + tokens) - pieces_with_state(before);
  while (options_.kv_pieces != 0 && kept_pieces() + more > options_.kv_pieces) {
    const int64_t other = youngest();
    if (other == slot) return false;
    preempt(other);
  }
  planned_[index] = before + tokens;
  return true;
}

// How many guesses the slot's sequence may read behind what is planned of it: for these no other
// one loses its slot.
int64_t Scheduler::room_for_guesses(int64_t slot) const {
  const int64_t planned = planned_[static_cast<size_t>(slot)];
  return options_.kv_pieces == 0 ? generate::kMostGuesses
                                 : pieces_of(planned) * kPieceTokens - planned;
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

// Takes pages for what the slot's sequence would read next. False if it is better to wait for a
// piece that another one reads in this step, or has no room.
bool Scheduler::load_pages(int64_t slot, const std::set<PieceKey>& being_read, StepPlan& plan) {
  RunningSequence& sequence = *slots_[static_cast<size_t>(slot)];
  const int64_t start = sequence.num_read(), reused = sequence.num_reused();
  const PieceKey* key = sequence.next_key();
  bool has_room = true;
  for (; key != nullptr && !being_read.contains(*key); key = sequence.next_key()) {
    const auto page = prefixes_.find(*key);
    if (!page) break;
    has_room = make_room(slot, kPieceTokens);
    if (!has_room) break;
    plan.loads.push_back({slot, sequence.num_read(), *page});
    sequence.skip_piece();
  }
  if (sequence.num_read() > start) {
    prefixes_.use(sequence.keys_to(sequence.num_read() - kPieceTokens));
    prefixes_.count_saved(sequence.num_reused() - reused);
  }
  return has_room && (key == nullptr || !being_read.contains(*key));
}

// Reads the next piece of a slot's prompt, if there is room for it, and keeps it. `being_read`:
// pieces that the plan stores, which nobody can load before the next one.
void Scheduler::add_piece(int64_t slot, std::set<PieceKey>& being_read, StepPlan& plan,
                          TokensLeft& left) {
  if (!load_pages(slot, being_read, plan)) return;
  const RunningSequence& sequence = *slots_[static_cast<size_t>(slot)];
  StepPart part = sequence.next_part(slot, std::min(left.any, options_.most_as_alone));
  const int64_t tokens = std::ssize(part.tokens);
  // Less than a layer of a piece is read by none, but the first gets on in any step.
  if (tokens > left.any || (left.has_piece && tokens > left.layers)) {
    left.is_closed = true;
    return;
  }
  if (!make_room(slot, tokens)) return;
  left.any -= tokens;
  left.has_piece = true;
  take_layers(sequence, part, left);
  const auto keys = sequence.keys_to(part.start);
  if (tokens == kPieceTokens && !keys.empty()) {
    const auto page = part.is_whole() ? prefixes_.add(keys) : std::nullopt;
    if (page) plan.stores.push_back({slot, part.start, *page});
    if (page || !part.is_whole()) being_read.insert(keys.back());
  }
  plan.parts.push_back(std::move(part));
}

// How many layers of a piece run in the step that is planned, at least one.
void Scheduler::take_layers(const RunningSequence& sequence, StepPart& part,
                            TokensLeft& left) const {
  const int64_t tokens = std::ssize(part.tokens);
  if (part.reads_last()) return;
  part.first_layer = sequence.num_layers_read();
  const int64_t layers = std::max<int64_t>(left.layers / tokens, 1);
  // How many drawn tokens are read again at once is another number in another step.
  const bool is_of_prompt = part.start < std::ssize(sequence.prompt());
  if (is_of_prompt && part.first_layer + layers < options_.num_layers) {
    part.num_layers = layers;
    part.wanted = Wanted::kNothing;
  }
  const int64_t taken = part.is_whole() ? options_.num_layers - part.first_layer : layers;
  left.layers = std::max<int64_t>(left.layers - taken * tokens, 0);
}

// Reads the last token of a slot's sequence and guesses of what follows it, if there is room.
void Scheduler::add_last(int64_t slot, StepPlan& plan, TokensLeft& left) {
  if (!make_room(slot, 1)) return;
  RunningSequence& sequence = *slots_[static_cast<size_t>(slot)];
  StepPart part = sequence.next_part(slot);
  // A prompt's next piece always has room, so that guesses can't hold it up.
  const int64_t limit = std::min({left.any - kPieceTokens, left.guesses, room_for_guesses(slot)});
  sequence.add_guesses(limit, options_.context, part);
  left.any -= part.num_guessed;
  left.guesses -= part.num_guessed;
  plan.parts.push_back(std::move(part));
}

// The oldest first: the others make room for it. Last tokens come before prompts.
StepPlan Scheduler::make_plan() {
  StepPlan plan;
  TokensLeft left{options_.step_tokens, options_.most_as_alone, 0};
  std::vector<int64_t> running;
  int64_t num_last = 0;
  std::ranges::fill(planned_, 0);
  for (int64_t i = 0; i < std::ssize(slots_); ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    running.push_back(i);
    if (slot->reads_known()) continue;
    --left.any;
    --left.guesses;
    ++num_last;
  }
  left.layers = pace_.layer_tokens(num_last, std::ssize(running) - num_last);
  std::ranges::sort(running, {},
                    [this](int64_t slot) { return slots_[static_cast<size_t>(slot)]->number(); });
  std::set<PieceKey> being_read;
  for (const int64_t i : running) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    if (slot->reads_known()) {
      if (left.any > 0 && !left.is_closed) add_piece(i, being_read, plan, left);
    } else {
      add_last(i, plan, left);
    }
  }
  plan.freed = std::exchange(freed_, {});
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
