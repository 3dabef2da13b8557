#include "weft/serve/engine/step_runner.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/models/reads_each.h"
#include "weft/nn/adapters/adapter_scope.h"

// Shape letters: B sequences or rows, N rows of a part, T tokens, D width, V vocabulary.

namespace weft::serve {

using Clock = std::chrono::steady_clock;

StepRunner::StepRunner(std::shared_ptr<models::CausalLM> model, int64_t context, int64_t slots)
    : model_(std::move(model)),
      context_(context),
      caches_(static_cast<size_t>(slots)),
      begun_(static_cast<size_t>(slots)) {
  const int64_t limit = model_->config().max_positions;
  core::check<core::ConfigError>(context >= 1 && context <= limit, "serve: a context of ", context,
                                 " tokens, expected 1 to ", limit, " for this model");
}

// A slot's cache with its first `length` positions, and room for `more`.
nn::KvCache& StepRunner::cache_of(int64_t slot, int64_t length, int64_t more) {
  auto& cache = caches_[static_cast<size_t>(slot)];
  const int64_t in_pieces = std::min(pieces_of(length + more) * kPieceTokens, context_);
  const int64_t capacity = in_pieces_ ? in_pieces : context_;
  if (cache == nullptr) cache = std::make_unique<nn::KvCache>(model_->make_cache(1, capacity));
  cache->truncate(length);
  if (cache->capacity() < capacity) cache->grow(capacity);
  return *cache;
}

int64_t StepRunner::num_layers() const {
  const c10::InferenceMode inference;
  auto* const by_layers = dynamic_cast<models::ReadsByLayers*>(model_.get());
  const bool is_able = by_layers != nullptr && by_layers->reads_by_layers(model_->make_cache(1, 1));
  return is_able ? model_->config().num_layers : 1;
}

int64_t StepRunner::most_as_alone() const {
  const c10::InferenceMode inference;
  auto* const together = dynamic_cast<models::ReadsEach*>(model_.get());
  return together == nullptr ? 1 : together->most_as_alone(model_->make_cache(1, 1));
}

int64_t StepRunner::num_used_slots() const {
  return std::ranges::count_if(caches_, [](const auto& cache) { return cache != nullptr; });
}

// On all ranks together.
int64_t StepRunner::cache_bytes(int64_t capacity) const {
  at::Tensor bytes = at::tensor({model_->make_cache(1, capacity).num_bytes()}, at::kLong);
  group().all_reduce(bytes);
  return bytes.item<int64_t>();
}

int64_t StepRunner::page_bytes() const {
  return cache_bytes(2 * kPieceTokens) - cache_bytes(kPieceTokens);
}

int64_t StepRunner::state_bytes() const { return cache_bytes(kPieceTokens) - page_bytes(); }

void StepRunner::load(const PageCopy& copy) {
  const nn::KvCache& page = pages_[static_cast<size_t>(copy.page)];
  cache_of(copy.slot, copy.start, kPieceTokens).append_copy(page, 0, kPieceTokens);
}

void StepRunner::store(const PageCopy& copy) {
  const auto page = static_cast<size_t>(copy.page);
  if (page == pages_.size()) pages_.push_back(model_->make_cache(1, kPieceTokens));
  pages_[page].truncate(0);
  pages_[page].append_copy(*caches_[static_cast<size_t>(copy.slot)], copy.start, kPieceTokens);
}

// In one pass where the model can.
at::Tensor StepRunner::read_each(const at::Tensor& ids_B, const std::vector<nn::KvCache*>& caches,
                                 const std::vector<int64_t>& adapters) {
  auto* const together = dynamic_cast<models::ReadsEach*>(model_.get());
  if (together != nullptr && together->reads_each(*caches.front())) {
    const nn::AdapterScope scope(adapters);
    return together->read_each(ids_B, caches);
  }
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < caches.size(); ++i) {
    const nn::AdapterScope scope({&adapters[i], 1});
    const at::Tensor id_11 = ids_B.narrow(0, static_cast<int64_t>(i), 1).unsqueeze(0);
    rows.push_back(model_->forward(id_11, caches[i]));
  }
  return at::cat(rows);
}

// The last token of each sequence that has read all others, with its guesses, together.
void StepRunner::read_tokens(const StepPlan& plan) {
  std::vector<int64_t> ids;
  std::vector<nn::KvCache*> caches;
  std::vector<int64_t> adapters;
  for (const StepPart& part : plan.parts) {
    if (!part.reads_last()) continue;
    ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
    adapters.resize(ids.size(), part.adapter);
    caches.resize(ids.size(), &cache_of(part.slot, part.start, std::ssize(part.tokens)));
  }
  if (ids.empty()) return;
  const at::Tensor x_B1D = read_each(at::tensor(ids, at::kLong), caches, adapters);
  int64_t row = 0;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    if (!plan.parts[i].reads_last()) continue;
    const int64_t count = std::ssize(plan.parts[i].tokens);
    last_N1D_[i] = x_B1D.narrow(0, row, count);
    row += count;
  }
}

// Some of a part's layers; what they give is undefined until all have run.
at::Tensor StepRunner::read_layers(const StepPart& part, const at::Tensor& ids_1T,
                                   nn::KvCache& cache) {
  auto& begun = begun_[static_cast<size_t>(part.slot)];
  if (part.first_layer == 0) {
    begun = dynamic_cast<models::ReadsByLayers&>(*model_).begin_read(ids_1T, cache);
  }
  const int64_t left = model_->config().num_layers - part.first_layer;
  core::check<core::InternalError>(begun != nullptr && begun->num_left() == left,
                                   "serve.StepRunner: layer ", part.first_layer, " of slot ",
                                   part.slot, ", expected the one behind those that have run");
  const at::Tensor x_1TD = begun->run(part.is_whole() ? begun->num_left() : part.num_layers);
  if (part.is_whole()) begun.reset();
  return x_1TD;
}

void StepRunner::read_piece(const StepPart& part, size_t index) {
  const nn::AdapterScope scope({&part.adapter, 1});
  const at::Tensor ids_1T = at::tensor(part.tokens, at::kLong).unsqueeze(0);
  // What layers keep of tokens that others have still to read is in the cache already.
  nn::KvCache& cache = part.first_layer > 0
                           ? *caches_[static_cast<size_t>(part.slot)]
                           : cache_of(part.slot, part.start, std::ssize(part.tokens));
  if (part.first_layer == 0) begun_[static_cast<size_t>(part.slot)].reset();
  const bool is_at_once = part.first_layer == 0 && part.is_whole();
  const at::Tensor x_1TD =
      is_at_once ? model_->forward(ids_1T, &cache) : read_layers(part, ids_1T, cache);
  if (!part.is_whole()) return;
  last_N1D_[index] = x_1TD.narrow(1, x_1TD.size(1) - 1, 1);
  if (part.wanted == Wanted::kHiddenSum) hidden_D_[index] = x_1TD[0].to(at::kFloat).sum(0);
}

void StepRunner::score(const StepPlan& plan, Wanted wanted, std::vector<PartScores>& scores) {
  std::vector<at::Tensor> last_N1D;
  std::vector<size_t> indices;
  std::vector<int64_t> adapters;
  std::vector<nn::GumbelDraw> draws;
  int64_t num_likeliest = 1;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const StepPart& part = plan.parts[i];
    if (part.wanted != wanted) continue;
    last_N1D.push_back(last_N1D_[i]);
    indices.push_back(i);
    scores[i].num_rows = static_cast<size_t>(last_N1D_[i].size(0));
    adapters.insert(adapters.end(), scores[i].num_rows, part.adapter);
    num_likeliest = std::max(num_likeliest, part.num_likeliest);
    for (uint64_t row = 0; row < scores[i].num_rows; ++row) {
      draws.push_back({part.draw.seed, part.draw.index + row, part.draw.temperature});
    }
  }
  if (indices.empty()) return;
  const at::Tensor x_B1D = at::cat(last_N1D);
  const nn::AdapterScope scope(adapters);
  const auto give = [&](auto all, auto PartScores::*place) {
    const size_t size = all.size() / adapters.size();
    for (const size_t i : indices) {
      scores[i].*place = all.first(scores[i].num_rows * size);
      all = all.subspan(scores[i].num_rows * size);
    }
  };
  if (wanted == Wanted::kDrawn) {
    drawn_ = model_->drawn(x_B1D, draws);
    return give(std::span<const nn::Largest>(drawn_), &PartScores::drawn);
  }
  if (wanted == Wanted::kLikeliest) {
    likeliest_ = model_->likeliest(x_B1D, num_likeliest);
    return give(std::span<const nn::Largest>(likeliest_), &PartScores::likeliest);
  }
  logits_BV_ = model_->logits(x_B1D).select(1, 0).to(at::kFloat).contiguous();
  give(std::span(logits_BV_.const_data_ptr<float>(), static_cast<size_t>(logits_BV_.numel())),
       &PartScores::logits);
}

void StepRunner::tell_hidden(const StepPlan& plan, std::vector<PartScores>& scores) {
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const Wanted wanted = plan.parts[i].wanted;
    if (wanted != Wanted::kHidden && wanted != Wanted::kHiddenSum) continue;
    at::Tensor& hidden_D = hidden_D_[i];
    // The sum of one token's.
    if (!hidden_D.defined()) hidden_D = last_N1D_[i].flatten().to(at::kFloat).contiguous();
    scores[i].hidden = {hidden_D.const_data_ptr<float>(), static_cast<size_t>(hidden_D.numel())};
  }
}

std::vector<PartScores> StepRunner::run(const StepPlan& plan) {
  const c10::InferenceMode inference;
  last_N1D_.assign(plan.parts.size(), {});
  hidden_D_.assign(plan.parts.size(), {});
  for (const int64_t slot : plan.freed) {
    begun_[static_cast<size_t>(slot)].reset();
    caches_[static_cast<size_t>(slot)].reset();
  }
  for (const PageCopy& copy : plan.loads) load(copy);
  const auto start = Clock::now();
  read_tokens(plan);
  const auto read = Clock::now();
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    if (!plan.parts[i].reads_last()) read_piece(plan.parts[i], i);
  }
  for (const PageCopy& copy : plan.stores) store(copy);
  times_.pieces = core::seconds_since(read);
  std::vector<PartScores> scores(plan.parts.size());
  score(plan, Wanted::kLikeliest, scores);
  score(plan, Wanted::kDrawn, scores);
  score(plan, Wanted::kLogits, scores);
  tell_hidden(plan, scores);
  times_.last_tokens = core::seconds_since(start) - times_.pieces;
  return scores;
}

}  // namespace weft::serve
