// Latent attention of many tokens: keys and values are made of the cache's latents.
#include <ATen/Parallel.h>

#include <algorithm>
#include <span>

#include "weft/core/profile.h"
#include "weft/models/passes/mixers/fused_latent.h"
#include "weft/models/passes/mixers/latent_rows.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/view.h"

namespace weft::models {
namespace {

using nn::kernels::kTile;

// Floats of keys and values that are made at once, as products and as tiles, if one head takes no
// more: some stay in the processor's caches, and a long context needs no room for all heads'.
constexpr int64_t kMostMade = int64_t{1} << 22;

// The kernel of tiles takes whole vectors; zeros fill them up.
int64_t whole_vectors(int64_t dim) {
  constexpr int64_t kVector = 16;
  return (dim + kVector - 1) / kVector * kVector;
}

// Of a head of a sequence: tiles of keys, [H, kTile] each, and behind them values, [S, V].
struct HeadTiles {
  HeadTiles(const nn::LatentHeads& heads, int64_t positions)
      : key_dim(whole_vectors(heads.key_dim())),
        keys(num_tiles(positions) * kTile * key_dim),
        floats(keys + num_tiles(positions) * kTile * heads.value_dim) {}

  int64_t key_dim, keys, floats;
};

}  // namespace

void FusedLatent::attend_expanded(const Layer& layer, const Call& call) {
  take_positions(layer, call);
  const int64_t some = heads_at_once(layer, call);
  for (int64_t head = 0; head < layer.num_heads; head += some) {
    const HeadRun run = {head, std::min(some, layer.num_heads - head)};
    take_tiles(layer, call, run);
    attend_tiles(layer, call, run);
  }
}

// The cache's latents, as products take them, and the turned keys beside them.
void FusedLatent::take_positions(const Layer& layer, const Call& call) {
  const core::Profiled profiled("keys, values");
  const nn::LatentHeads& heads = layer.heads;
  const int64_t positions = call.positions(), rows = call.batch * positions;
  float* const turned = turned_keys_.make_room(rows * heads.rope_dim);
  latent_inputs_.take(quant::kernels::active_panel_kernel(), {rows, heads.rank, positions},
                      [&](int64_t row, float* room) {
                        const LatentRows kept(call, row / positions, heads);
                        kept.read_turned(row % positions, turned + row * heads.rope_dim);
                        kept.read_latent(row % positions, room);
                        return room;
                      });
}

int64_t FusedLatent::heads_at_once(const Layer& layer, const Call& call) const {
  const nn::LatentHeads& heads = layer.heads;
  const int64_t made = call.positions() * (heads.plain_dim + heads.value_dim);
  const int64_t each = call.batch * (made + HeadTiles(heads, call.positions()).floats);
  return std::max(kMostMade / each, int64_t{1});
}

void FusedLatent::take_tiles(const Layer& layer, const Call& call, const HeadRun& run) {
  const core::Profiled profiled("keys, values");
  const int64_t each = layer.heads.plain_dim + layer.heads.value_dim, stride = run.count * each;
  const int64_t positions = call.positions(), tiles = num_tiles(positions);
  float* const made = made_.make_room(call.batch * positions * stride);
  const quant::PanelProduct product = {layer.key_value.rows(run.first * each, stride), made,
                                       stride};
  quant::multiply(quant::kernels::active_panel_kernel(), latent_inputs_, std::span(&product, 1));
  tiles_.make_room(call.batch * run.count * HeadTiles(layer.heads, positions).floats);
  at::parallel_for(0, call.batch * run.count * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      take_tile(layer, call, run, task / tiles, task % tiles);
    }
  });
}

// Tile `tile` of head `index`, counted over the sequences' runs.
void FusedLatent::take_tile(const Layer& layer, const Call& call, const HeadRun& run, int64_t index,
                            int64_t tile) {
  thread_local core::Scratch<float> memory;
  const nn::LatentHeads& heads = layer.heads;
  const int64_t N = heads.plain_dim, P = heads.rope_dim, V = heads.value_dim, each = N + V;
  const int64_t positions = call.positions(), first = tile * kTile;
  const int64_t count = std::min(kTile, positions - first);
  const HeadTiles place(heads, positions);
  float* const keys = memory.make_room(kTile * place.key_dim);
  float* const to = tiles_.data() + index * place.floats;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = index / run.count * positions + first + i;
    const float* const own = made_.data() + (row * run.count + index % run.count) * each;
    float* const key = keys + i * place.key_dim;
    std::copy_n(own, N, key);
    std::copy_n(turned_keys_.data() + row * P, P, key + N);
    std::fill(key + N + P, key + place.key_dim, 0.F);
    std::copy_n(own + N, V, to + place.keys + (first + i) * V);
  }
  to_key_tile(keys, count, place.key_dim, to + first * place.key_dim);
}

void FusedLatent::attend_tiles(const Layer& layer, const Call& call, const HeadRun& run) {
  const core::Profiled profiled("attention");
  const int64_t tiles = num_tiles(call.tokens);
  at::parallel_for(0, call.batch * run.count * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      attend_tile(layer, call, run, task / tiles, task % tiles);
    }
  });
}

// Queries of tile `tile` of the pass's tokens.
void FusedLatent::attend_tile(const Layer& layer, const Call& call, const HeadRun& run,
                              int64_t index, int64_t tile) {
  thread_local core::Scratch<float> memory;
  const nn::LatentHeads& heads = layer.heads;
  const int64_t H = heads.key_dim(), V = heads.value_dim, n = layer.num_heads;
  const int64_t head = run.first + index % run.count, sequence = index / run.count;
  const int64_t first = tile * kTile, row = sequence * call.tokens + first;
  const HeadTiles place(heads, call.positions());
  float* const q = memory.make_room(kTile * (place.key_dim + V) + nn::kernels::kAttendScratch);
  float* const o = q + kTile * place.key_dim;
  nn::kernels::AttentionHead one;
  one.tokens = std::min(kTile, call.tokens - first);
  one.before = call.start(sequence) + first;
  one.window = call.positions();
  one.head_dim = place.key_dim;
  one.value_dim = V;
  one.q = q;
  one.o = o;
  one.kt = tiles_.data() + index * place.floats;
  one.v = one.kt + place.keys;
  for (int64_t t = 0; t < one.tokens; ++t) {
    float* const own = q + t * place.key_dim;
    std::copy_n(queries.row(row + t) + head * H, H, own);
    std::fill(own + H, own + place.key_dim, 0.F);
  }
  nn::kernels::active_kernel().attend(one, o + kTile * V);
  for (int64_t t = 0; t < one.tokens; ++t) {
    std::copy_n(o + t * V, V, out_.data() + ((row + t) * n + head) * V);
  }
}

}  // namespace weft::models
