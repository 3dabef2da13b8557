#include "weft/train/plan/model_sizes.h"

#include <numeric>
#include <utility>

#include "weft/core/error.h"
#include "weft/shard/split.h"
#include "weft/train/config/new_families.h"
#include "weft/train/pipeline/stage_layers.h"

namespace weft::train {
namespace {

void add_matrix(UnitSizes& unit, int64_t rows, int64_t columns) {
  unit.numels.push_back(rows * columns);
}

bool has_partial_sums(const ModelPlace& place) { return place.sequence_parallel && place.tp > 1; }

void add_hidden_matrix(UnitSizes& unit, int64_t rows, int64_t columns) {
  unit.hidden_matrices.push_back(unit.numels.size());
  add_matrix(unit, rows, columns);
}

size_t norms_of_block(const ModelSizes& model) { return model.has_norms_before_and_after ? 4 : 2; }

UnitSizes block_unit(const ModelSizes& model, const RankSizes& rank, bool has_norms) {
  const int64_t width = model.hidden_size;
  const int64_t queries = rank.heads.heads.length * model.head_dim;
  const int64_t keys = rank.heads.kv_heads.length * model.head_dim;
  UnitSizes unit;
  for (const int64_t rows : {queries, keys, keys}) {
    add_hidden_matrix(unit, rows, width);
    if (model.has_qkv_bias) unit.numels.push_back(rows);
  }
  add_hidden_matrix(unit, width, queries);
  if (model.has_head_norms) unit.numels.insert(unit.numels.end(), 2, model.head_dim);
  if (model.has_norms_over_heads) unit.numels.insert(unit.numels.end(), {queries, keys});
  for (int i = 0; i < 3; ++i) add_hidden_matrix(unit, rank.ffn_width, width);
  if (has_norms) unit.numels.insert(unit.numels.end(), norms_of_block(model), width);
  const int64_t all_queries = model.num_heads * model.head_dim;
  const int64_t all_keys = model.num_kv_heads * model.head_dim;
  unit.rows_and_columns =
      2 * (all_queries + width) + 2 * (all_keys + width) + 3 * (model.intermediate_size + width);
  return unit;
}

void add_table(UnitSizes& unit, const ModelSizes& model, const RankSizes& rank) {
  add_matrix(unit, rank.vocab_size, model.hidden_size);
  unit.rows_and_columns += model.vocab_size + model.hidden_size;
}

// What is around the blocks: of a stage's own, the norms if their gradients are sums over the model
// axis, and what it shares with another stage.
std::vector<UnitSizes> units_around(const ModelSizes& model, const RankSizes& rank,
                                    bool has_norms) {
  const bool is_alone = rank.has_embedding && rank.has_head;
  const bool is_shared = model.is_tied && !is_alone;
  UnitSizes own, sums, shared;
  shared.is_shared = true;
  sums.is_sum = true;
  if (rank.has_embedding) add_table(is_shared ? shared : own, model, rank);
  if (rank.has_head && !(model.is_tied && is_alone)) {
    add_table(is_shared ? shared : own, model, rank);
  }
  if (rank.has_head && has_norms) own.numels.push_back(model.hidden_size);
  if (!has_norms) {
    const size_t norms = norms_of_block(model) * static_cast<size_t>(rank.num_layers);
    sums.numels.assign(norms + (rank.has_head ? 1 : 0), model.hidden_size);
  }
  std::vector<UnitSizes> units = {std::move(own), std::move(sums), std::move(shared)};
  std::erase_if(units, [](const UnitSizes& unit) { return unit.numels.empty(); });
  return units;
}

// Parameters that a token is multiplied with.
LayerCosts costs_of(const ModelSizes& model) {
  const auto width = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(2 * (model.num_heads + model.num_kv_heads));
  LayerCosts costs;
  costs.layer = width * (heads * static_cast<double>(model.head_dim) +
                         3 * static_cast<double>(model.intermediate_size));
  costs.behind = width * static_cast<double>(model.vocab_size);
  return costs;
}

}  // namespace

int64_t UnitSizes::num_elements() const {
  return std::accumulate(numels.begin(), numels.end(), int64_t{0});
}

ModelSizes sizes_of(const ModelSection& model) {
  core::check<core::ConfigError>(model.vocab_size > 0,
                                 "model.vocab_size: is not known; give it or model.tokenizer");
  ModelSizes sizes;
  sizes.vocab_size = model.vocab_size;
  sizes.hidden_size = model.hidden_size;
  sizes.num_layers = model.num_layers;
  sizes.num_heads = model.num_heads;
  sizes.num_kv_heads = model.num_kv_heads;
  sizes.head_dim = model.head_dim;
  sizes.intermediate_size = model.intermediate_size;
  sizes.is_tied = model.tied;
  const NewFamily& family = new_family(model.family);
  sizes.has_qkv_bias = family.has_qkv_bias;
  sizes.has_head_norms = family.has_head_norms;
  sizes.has_norms_over_heads = family.has_norms_over_heads;
  sizes.has_norms_before_and_after = family.has_norms_before_and_after;
  return sizes;
}

std::vector<int64_t> stage_layers(const ModelSizes& model, int64_t pipe,
                                  const std::vector<int64_t>& pipe_layers) {
  if (pipe_layers.empty()) return balance_layers(model.num_layers, pipe, costs_of(model));
  check_stage_layers(pipe_layers, pipe, model.num_layers, "mesh.pipe_layers");
  return pipe_layers;
}

double stage_work(const ModelSizes& model, const ModelPlace& place) {
  const LayerCosts costs = costs_of(model);
  const auto layers = stage_layers(model, place.pipe, place.pipe_layers);
  const bool is_last = place.stage + 1 == place.pipe;
  const double own = costs.layer * static_cast<double>(layers[static_cast<size_t>(place.stage)]) +
                     (is_last ? costs.behind : 0);
  return own / (costs.layer * static_cast<double>(model.num_layers) + costs.behind);
}

RankSizes rank_sizes(const ModelSizes& model, const ModelPlace& place) {
  RankSizes rank;
  rank.heads = shard::shard_heads(model.num_heads, model.num_kv_heads, place.tp, place.model_rank);
  rank.ffn_width = shard::part(model.intermediate_size, place.tp, place.model_rank).length;
  rank.vocab_size = shard::part(model.vocab_size, place.tp, place.model_rank).length;
  const auto layers = stage_layers(model, place.pipe, place.pipe_layers);
  rank.num_layers = layers[static_cast<size_t>(place.stage)];
  rank.has_embedding = place.stage == 0;
  rank.has_head = place.stage == place.pipe - 1;
  return rank;
}

std::vector<UnitSizes> unit_sizes(const ModelSizes& model, const ModelPlace& place) {
  const RankSizes rank = rank_sizes(model, place);
  const bool has_norms = !has_partial_sums(place);
  std::vector<UnitSizes> units(static_cast<size_t>(rank.num_layers),
                               block_unit(model, rank, has_norms));
  for (UnitSizes& unit : units_around(model, rank, has_norms)) units.push_back(std::move(unit));
  return units;
}

int64_t num_parameters(const ModelSizes& model) {
  int64_t count = 0;
  for (const UnitSizes& unit : unit_sizes(model, {})) count += unit.num_elements();
  return count;
}

int64_t num_matmul_parameters(const ModelSizes& model) {
  const int64_t table = model.is_tied ? 0 : model.vocab_size * model.hidden_size;
  return num_parameters(model) - table;
}

}  // namespace weft::train
