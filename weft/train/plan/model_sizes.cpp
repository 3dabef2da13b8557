#include "weft/train/plan/model_sizes.h"

#include <numeric>

#include "weft/core/error.h"
#include "weft/shard/split.h"

namespace weft::train {
namespace {

void add_matrix(UnitSizes& unit, int64_t rows, int64_t columns) {
  unit.numels.push_back(rows * columns);
}

void add_hidden_matrix(UnitSizes& unit, int64_t rows, int64_t columns) {
  unit.hidden_matrices.push_back(unit.numels.size());
  add_matrix(unit, rows, columns);
}

UnitSizes block_unit(const ModelSizes& model, const RankSizes& rank) {
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
  for (int i = 0; i < 3; ++i) add_hidden_matrix(unit, rank.ffn_width, width);
  unit.numels.insert(unit.numels.end(), 2, width);
  const int64_t all_queries = model.num_heads * model.head_dim;
  const int64_t all_keys = model.num_kv_heads * model.head_dim;
  unit.rows_and_columns =
      2 * (all_queries + width) + 2 * (all_keys + width) + 3 * (model.intermediate_size + width);
  return unit;
}

UnitSizes root_unit(const ModelSizes& model, const RankSizes& rank) {
  UnitSizes unit;
  const bool has_own_head = !model.is_tied || !rank.has_embedding;
  const int tables = (rank.has_embedding ? 1 : 0) + (rank.has_head && has_own_head ? 1 : 0);
  for (int i = 0; i < tables; ++i) add_matrix(unit, rank.vocab_size, model.hidden_size);
  if (rank.has_head) unit.numels.push_back(model.hidden_size);
  unit.rows_and_columns = tables * (model.vocab_size + model.hidden_size);
  return unit;
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
  sizes.has_qkv_bias = model.family == "qwen2";
  sizes.has_head_norms = model.family == "qwen3";
  return sizes;
}

RankSizes rank_sizes(const ModelSizes& model, const ModelPlace& place) {
  RankSizes rank;
  rank.heads = shard::shard_heads(model.num_heads, model.num_kv_heads, place.tp, place.model_rank);
  rank.ffn_width = shard::part(model.intermediate_size, place.tp, place.model_rank).length;
  rank.vocab_size = shard::part(model.vocab_size, place.tp, place.model_rank).length;
  rank.num_layers = shard::part(model.num_layers, place.pipe, place.stage).length;
  rank.has_embedding = place.stage == 0;
  rank.has_head = place.stage == place.pipe - 1;
  return rank;
}

std::vector<UnitSizes> unit_sizes(const ModelSizes& model, const ModelPlace& place) {
  const RankSizes rank = rank_sizes(model, place);
  std::vector<UnitSizes> units(static_cast<size_t>(rank.num_layers), block_unit(model, rank));
  if (rank.has_embedding || rank.has_head) units.push_back(root_unit(model, rank));
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
