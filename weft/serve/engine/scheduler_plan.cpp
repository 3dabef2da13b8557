// What the next step does: who reads what, who makes room for whom, and which pages are copied.
#include <algorithm>
#include <set>
#include <utility>

#include "weft/serve/engine/running_sequence.h"
#include "weft/serve/engine/scheduler.h"

namespace weft::serve {

// After the step that is planned.
int64_t Scheduler::kept_pieces() const {
  int64_t pieces = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr) continue;
    pieces += pieces_with_state(std::max(slots_[i]->num_held(), planned_[i]));
  }
  return pieces;
}

// Whether the slot's sequence may keep so many more positions in the step that is planned; younger
// ones, of which nothing is planned yet, lose their slots for it.
bool Scheduler::make_room(int64_t slot, int64_t tokens) {
  const auto index = static_cast<size_t>(slot);
  const int64_t before = slots_[index]->num_read();
  const int64_t held = std::max(slots_[index]->num_held(), planned_[index]);
  const int64_t more =
      std::max<int64_t>(pieces_with_state(before + tokens) - pieces_with_state(held), 0);
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

// Where nobody waits for a next token, all; else the oldest, which nobody may hold up, and the one
// with the least to read, so that a short prompt isn't held up by a long one.
Scheduler::Readers Scheduler::readers_among(const std::vector<int64_t>& running) {
  Readers readers;
  for (const int64_t i : running) {
    if (slots_[static_cast<size_t>(i)]->reads_known()) readers.slots.push_back(i);
  }
  const int64_t num_pieces = std::ssize(readers.slots);
  const int64_t num_last = std::ssize(running) - num_pieces;
  readers.layer_tokens = pace_.layer_tokens(num_last, num_pieces);
  if (num_last == 0 || num_pieces < 2 || !pace_.is_limited()) return readers;
  const auto sequence = [this](int64_t slot) -> const RunningSequence& {
    return *slots_[static_cast<size_t>(slot)];
  };
  const int64_t oldest = readers.slots.front();
  const int64_t shorter = *std::ranges::min_element(readers.slots, {}, [&](int64_t slot) {
    return sequence(slot).num_known() - sequence(slot).num_read();
  });
  const PieceKey *one = sequence(oldest).next_key(), *other = sequence(shorter).next_key();
  // What the oldest reads, the other gets a copy of.
  const bool is_one = shorter == oldest || (one != nullptr && other != nullptr && *one == *other);
  if (is_one) {
    readers.slots = {oldest};
  } else if (readers.layer_tokens >= 2 * kPieceTokens) {
    readers.slots = {oldest, shorter};
    readers.layer_tokens /= 2;
  } else {
    is_shorter_next_ = !is_shorter_next_;
    readers.slots = {is_shorter_next_ ? shorter : oldest};
  }
  return readers;
}

// Reads the next piece of a slot's prompt, if there is room for it, and keeps it. `being_read`:
// pieces that the plan stores, or goes on with, which nobody can load before the next one.
void Scheduler::add_piece(int64_t slot, int64_t layer_tokens, std::set<PieceKey>& being_read,
                          StepPlan& plan, int64_t& left) {
  if (!load_pages(slot, being_read, plan)) return;
  const RunningSequence& sequence = *slots_[static_cast<size_t>(slot)];
  StepPart part = sequence.next_part(slot, std::min(left, options_.most_as_alone));
  const int64_t tokens = std::ssize(part.tokens);
  if (tokens > left) {
    left = 0;
    return;
  }
  if (!make_room(slot, tokens)) return;
  left -= tokens;
  take_layers(sequence, layer_tokens, part);
  const auto keys = sequence.keys_to(part.start);
  if (tokens == kPieceTokens && !keys.empty()) {
    const auto page = part.is_whole() ? prefixes_.add(keys) : std::nullopt;
    if (page) plan.stores.push_back({slot, part.start, *page});
    if (page || !part.is_whole()) being_read.insert(keys.back());
  }
  plan.parts.push_back(std::move(part));
}

// How many layers of a piece run in the step that is planned, at least one.
void Scheduler::take_layers(const RunningSequence& sequence, int64_t layer_tokens,
                            StepPart& part) const {
  if (part.reads_last()) return;
  part.first_layer = sequence.num_layers_read();
  const int64_t layers =
      std::max<int64_t>(layer_tokens / StepPace::counted_tokens(std::ssize(part.tokens)), 1);
  // How many drawn tokens are read again at once is another number in another step.
  const bool is_of_prompt = part.start < std::ssize(sequence.prompt());
  if (!is_of_prompt || layers >= options_.num_layers - part.first_layer) return;
  part.num_layers = layers;
  part.wanted = Wanted::kNothing;
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
  TokensLeft left{options_.step_tokens, options_.most_as_alone};
  std::vector<int64_t> running;
  std::ranges::fill(planned_, 0);
  for (int64_t i = 0; i < std::ssize(slots_); ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    running.push_back(i);
    if (slot->reads_known()) continue;
    --left.any;
    --left.guesses;
  }
  std::ranges::sort(running, {},
                    [this](int64_t slot) { return slots_[static_cast<size_t>(slot)]->number(); });
  const Readers readers = readers_among(running);
  std::set<PieceKey> being_read;
  for (const int64_t i : running) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot == nullptr) continue;
    if (slot->reads_known()) {
      const bool is_reader = std::ranges::count(readers.slots, i) > 0;
      if (is_reader && left.any > 0) {
        add_piece(i, readers.layer_tokens, being_read, plan, left.any);
      }
    } else {
      add_last(i, plan, left);
    }
  }
  plan.freed = std::exchange(freed_, {});
  return plan;
}

}  // namespace weft::serve
