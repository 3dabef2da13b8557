#include "weft/models/quantize/collect.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/fused_rows.h"
#include "weft/models/decoder/weights/tiled_heads.h"
#include "weft/nn/layers/observed_linear.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;

constexpr const char* kWhere = "models.collect_importance";

bool is_table(Part part) { return part == Part::kEmbedding || part == Part::kHead; }

// What one matrix read, of all columns of the whole.
struct Counted {
  at::Tensor squares;
  double count = 0;
  at::Tensor products;
};

// Puts observers into a model's linears while it lives.
class Observation {
 public:
  Observation(CausalLM& model, bool takes_products) : places_(part_places(model.config())) {
    for (const nn::HeldLinear& held : nn::find_linears(model)) {
      const auto place = places_.find(held.path);
      const bool is_matrix =
          place != places_.end() && (!is_table(place->second.part) ||
                                     (takes_products && place->second.part == Part::kEmbedding));
      const auto inner = held.holder->inner();
      if (!is_matrix || inner == nullptr) continue;
      const Part part = place->second.part;
      const bool has_products = takes_products && !is_expert_part(part);
      auto observer = std::make_shared<nn::ObservedLinearImpl>(inner, has_products);
      held.holder->set_inner(observer);
      observers_.push_back({held, std::move(observer)});
    }
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  ~Observation() {
    for (const auto& [held, observer] : observers_) held.holder->set_inner(observer->inner());
  }

  // The squares of the gradients of each column of what the embedding returned.
  at::Tensor embedding_gradients(const ModelConfig& config) const {
    const auto found = find(model_name(config, {Part::kEmbedding}));
    return found == observers_.end() ? at::Tensor() : found->second->sums().products().diagonal();
  }

  // What this rank has of a linear, in the whole's columns; nothing of one that it lacks.
  Counted of(const std::string& path, int64_t columns) const {
    Counted counted{at::zeros({2, columns}, at::kDouble), 0, {}};
    const auto found = find(path);
    if (found == observers_.end()) return counted;
    const auto& [held, observer] = *found;
    counted.count = static_cast<double>(observer->sums().count());
    counted.products = observer->sums().products();
    const nn::LinearCut* cut = held.holder->cut();
    if (cut == nullptr || cut->kind != nn::ShardKind::kShardedToAll) {
      counted.squares[0] = observer->sums().squares();
      counted.squares[1] = 1;
      return counted;
    }
    int64_t before = 0;
    for (const shard::Range& range : cut->layout.of(cut->group.rank())) {
      counted.squares[0].narrow(0, range.start, range.length) =
          observer->sums().squares().narrow(0, before, range.length);
      counted.squares[1].narrow(0, range.start, range.length) = 1;
      before += range.length;
    }
    return counted;
  }

 private:
  using Observers = std::vector<std::pair<nn::HeldLinear, std::shared_ptr<nn::ObservedLinearImpl>>>;

  Observers::const_iterator find(const std::string& path) const {
    return std::ranges::find_if(observers_,
                                [&](const auto& row) { return row.first.path == path; });
  }

  std::map<std::string, PartPlace> places_;
  Observers observers_;
};

at::Tensor in_gguf_order(const ModelConfig& config, Part part, const at::Tensor& columns) {
  const TiledHeads heads = tiled_heads(config, part);
  if (heads.is_plain() || part != Part::kDeltaOut) return columns;
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : heads.in_model()) {
    parts.push_back(columns.narrow(-1, range.start, range.length));
  }
  return at::cat(parts, -1);
}

// Adds up what the ranks have and names it.
class Gathering {
 public:
  Gathering(const CausalLM& model, const Observation& observed)
      : config_(model.config()), group_(model.group()), observed_(observed) {}

  std::map<std::string, InputStatistics> run() {
    for (const PartPlace& place : weight_places(config_)) {
      const WeightRow& row = weight_row(config_, place);
      const bool is_matrix = row.shape.out != WeightDim::kNone &&
                             row.shape.out != WeightDim::kOne && !is_table(place.part) &&
                             place.part != Part::kRouter && place.part != Part::kKeyValue;
      if (is_matrix) add(place, size_of(config_, row.shape.in));
    }
    return std::move(tensors_);
  }

 private:
  void add(const PartPlace& place, int64_t columns) {
    const Counted counted = observed_.of(model_name(config_, place), columns);
    // Squares, on how many ranks each is, and how many tokens there were.
    at::Tensor sums =
        at::cat({counted.squares.reshape({-1}), at::full({1}, counted.count, at::kDouble),
                 at::full({1}, counted.count > 0 ? 1.0 : 0.0, at::kDouble)});
    group_.all_reduce(sums);
    const at::Tensor holders = sums.narrow(0, columns, columns).clamp_min(1);
    const at::Tensor squares =
        in_gguf_order(config_, place.part, sums.narrow(0, 0, columns) / holders);
    const double ranks = std::max(1.0, sums[-1].item<double>());
    put(place, squares, sums[-2].item<double>() / ranks);
    if (counted.products.defined() && tiled_heads(config_, place.part).is_plain()) {
      add_products(place, counted.products);
    }
  }

  // Of a tensor of several weights' rows, which read the same, the mean over all rows.
  void add_products(const PartPlace& place, const at::Tensor& products) {
    at::Tensor& sums = tensors_.at(importance_name(config_, place)).products;
    const FusedRow* fused = written_gguf_row(config_, place.part);
    if (fused == nullptr) {
      sums = products;
      return;
    }
    const auto rows = static_cast<double>(size_of(config_, weight_row(config_, place).shape.out));
    const int64_t all_rows = fused_place(config_, *fused, place.part).num_rows;
    const at::Tensor own = products * (rows / static_cast<double>(all_rows));
    sums = sums.defined() ? sums + own : own;
  }

  void put(const PartPlace& place, const at::Tensor& squares, double count) {
    const bool is_expert = is_expert_part(place.part);
    const int64_t matrices = is_expert ? config_.experts.num_experts : 1;
    const auto [entry, is_new] = tensors_.try_emplace(importance_name(config_, place));
    InputStatistics& statistics = entry->second;
    if (is_new) {
      statistics.squares = at::zeros({matrices, squares.size(0)}, at::kFloat);
      statistics.counts = at::zeros({matrices}, at::kFloat);
    }
    const int64_t index = is_expert ? place.expert : 0;
    statistics.squares[index] = squares;
    statistics.counts[index] = count;
  }

  const ModelConfig& config_;
  const dist::Group& group_;
  const Observation& observed_;
  std::map<std::string, InputStatistics> tensors_;
};

at::Tensor chunk_ids(std::span<const int64_t> tokens, const CollectOptions& options,
                     int64_t chunk) {
  const auto own = tokens.subspan(static_cast<size_t>(chunk * options.context),
                                  static_cast<size_t>(options.context));
  at::Tensor ids_BT = at::tensor(at::ArrayRef<int64_t>(own.data(), own.size()), at::kLong);
  if (options.first_token >= 0) *ids_BT.mutable_data_ptr<int64_t>() = options.first_token;
  return ids_BT.unsqueeze(0);
}

int64_t count_chunks(const CausalLM& model, std::span<const int64_t> tokens,
                     const CollectOptions& options) {
  const auto length = static_cast<int64_t>(tokens.size());
  int64_t chunks = length / options.context;
  check<ConfigError>(chunks > 0, kWhere, ": a text of ", length, " tokens, expected at least ",
                     options.context, ", one chunk; give a longer one or smaller chunks");
  if (options.max_chunks > 0) chunks = std::min(chunks, options.max_chunks);
  for (const int64_t token : tokens) {
    check<ConfigError>(token >= 0 && token < model.config().vocab_size, kWhere, ": token ", token,
                       ", expected one below the vocabulary's ", model.config().vocab_size);
  }
  check<ConfigError>(!options.takes_products || model.group().size() == 1, kWhere, ": products on ",
                     model.group().size(),
                     " ranks, expected 1: no rank has all inputs of a matrix cut by columns");
  return chunks;
}

// What the head says about the next token.
struct Predictions {
  at::Tensor logits_TV;
  at::Tensor probabilities_TV;
};

Predictions predict(CausalLM& model, const at::Tensor& x_TD) {
  const at::Tensor logits_TV = model.logits(x_TD.unsqueeze(0)).squeeze(0).to(at::kFloat);
  const at::Tensor probabilities_TV = logits_TV.softmax(-1);
  check<core::FormatError>(std::isfinite(probabilities_TV.sum().item<float>()), kWhere,
                           ": logits, expected finite numbers, got others; look for weights that "
                           "are not finite");
  return {logits_TV, probabilities_TV};
}

// The mean square of the loss's gradients by what the head's product gives for each token. Where
// the next token is one of those that the model predicts, as often as it predicts them, that is
// p (1 - p) of each logit, which then go back through cap and scale.
at::Tensor head_gradients(const ModelConfig& config, const Predictions& predictions) {
  const at::Tensor& p_TV = predictions.probabilities_TV;
  at::Tensor squares_TV = p_TV * (1 - p_TV) * (config.logits_scale * config.logits_scale);
  if (config.logits_cap != 0) {
    const at::Tensor capped_TV = predictions.logits_TV / config.logits_cap;
    squares_TV = squares_TV * (1 - capped_TV.square()).square();
  }
  return squares_TV.mean(-1);
}

void read_chunk(CausalLM& model, const at::Tensor& ids_BT, bool takes_products, nn::InputSums& head,
                at::Generator& draws) {
  if (!takes_products) return head.add(model.forward(ids_BT, nullptr));
  const at::Tensor x_BTD = model.forward(TokenBatch{ids_BT});
  head.add(x_BTD);
  const at::Tensor read_BTD = x_BTD.narrow(1, 0, ids_BT.size(1) - 1);
  at::Tensor drawn_T1;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor x_TD = read_BTD.detach().squeeze(0);
    const Predictions predictions = predict(model, x_TD);
    head.add_products(x_TD, head_gradients(model.config(), predictions));
    drawn_T1 = at::multinomial(predictions.probabilities_TV, 1, false, draws);
  }
  model.loss_sum(read_BTD, drawn_T1.t()).backward();
}

InputStatistics statistics_of(const at::Tensor& squares, double count, const at::Tensor& products) {
  return {squares.to(at::kFloat).unsqueeze(0), at::full({1}, count, at::kFloat), products};
}

// Of what the head multiplies, and of the embedding. A token reads one of its rows: an error there,
// on average over the rows, counts the gradients of all tokens over the number of rows.
void add_tables(const ModelConfig& config, const nn::InputSums& head,
                const at::Tensor& embedding_gradients, Importance& to) {
  const auto count = static_cast<double>(head.count());
  at::Tensor products = head.products();
  const bool is_known = embedding_gradients.defined();
  const at::Tensor lookups =
      is_known ? embedding_gradients / static_cast<double>(config.vocab_size) : at::Tensor();
  if (config.is_tied) {
    if (products.defined() && is_known) products = products + lookups.diag();
    to.tensors.emplace("token_embd.weight", statistics_of(head.squares(), count, products));
    return;
  }
  to.tensors.emplace("output.weight", statistics_of(head.squares(), count, products));
  if (!is_known) return;
  to.tensors.emplace("token_embd.weight",
                     statistics_of(embedding_gradients, count, lookups.diag()));
}

}  // namespace

Importance collect_importance(CausalLM& model, std::span<const int64_t> tokens,
                              const CollectOptions& options, const CollectProgress& progress) {
  const int64_t chunks = count_chunks(model, tokens, options);
  const c10::InferenceMode inference(!options.takes_products);
  const at::AutoGradMode grad(options.takes_products);
  const Observation observation(model, options.takes_products);
  nn::InputSums head(model.config().width, options.takes_products);
  at::Generator draws = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    read_chunk(model, chunk_ids(tokens, options, chunk), options.takes_products, head, draws);
    progress(chunk + 1, chunks);
  }
  Importance importance;
  importance.tensors = Gathering(model, observation).run();
  add_tables(model.config(), head, observation.embedding_gradients(model.config()), importance);
  importance.num_chunks = chunks;
  importance.chunk_size = options.context;
  return importance;
}

}  // namespace weft::models
