#include "weft/models/passes/fused_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>

#include "weft/models/passes/attention_rows.h"
#include "weft/nn/kernels/select.h"
#include "weft/quant/view.h"

// H: head dim. A row is one token of one sequence.

namespace weft::models {
namespace {

using nn::kernels::kTile;

at::ScalarType cache_type(const FusedAttention::Call& call) { return call.caches.front()->dtype(); }

// Whether keys and values are read as they lie.
bool is_float(const FusedAttention::Call& call) { return cache_type(call) == at::kFloat; }

const nn::kernels::CacheKernel& cache_kernel(const FusedAttention::Call& call) {
  return cache_kernel_of(cache_type(call));
}

// Keys and values of a sequence in a layer.
struct CacheRows {
  std::byte *keys, *values;
  int64_t capacity, row_bytes;

  CacheRows(const FusedAttention::Call& call, int64_t sequence, int64_t head_dim)
      : capacity(call.cache_of(sequence).capacity()),
        row_bytes(nn::KvCache::row_bytes(cache_type(call), head_dim)) {
    const nn::KvCache& cache = call.cache_of(sequence);
    const int64_t before =
        call.has_own_caches() ? 0 : sequence * call.k.count * capacity * row_bytes;
    keys = static_cast<std::byte*>(cache.keys(call.layer)) + before;
    values = static_cast<std::byte*>(cache.values(call.layer)) + before;
  }

  void* key(int64_t kv, int64_t position) const { return keys + at(kv, position); }
  void* value(int64_t kv, int64_t position) const { return values + at(kv, position); }
  int64_t at(int64_t kv, int64_t position) const { return (kv * capacity + position) * row_bytes; }
};

// How many of `most` heads from `head` on read its keys and values.
int64_t heads_beside(const FusedAttention::Call& call, int64_t head, int64_t most) {
  const auto* const kv = call.spec->kv_of_head.data() + head;
  return std::find_if(kv, kv + most, [kv](int64_t other) { return other != *kv; }) - kv;
}

// The first tile of positions that a query of the pass sees.
int64_t first_tile(int64_t start, int64_t window) {
  return window == 0 ? 0 : std::max<int64_t>(0, start + 1 - window) / kTile;
}

}  // namespace

// What the kernel needs for a tile of one head's queries, this thread's until its next one; lines
// of the cache, which tiles of bfloat16 are read by.
struct FusedAttention::TileMemory {
  explicit TileMemory(int64_t head_dim) {
    thread_local core::Scratch<float> memory;
    const int64_t rows = kTile * head_dim;
    q = memory.make_room(2 * rows + std::max(nn::kernels::kAttendScratch,
                                             nn::kernels::packed_attend_scratch(kTile, head_dim)));
    o = q + rows;
    scratch = o + rows;
  }
  float *q, *o, *scratch;
};

FusedAttention::FusedAttention(int64_t head_dim, const Options& options)
    : head_dim_(head_dim), options_(options) {
  if (nn::kernels::can_pack(head_dim)) packed_ = nn::kernels::active_packed_attention();
}

const float* FusedAttention::run(const Call& call) {
  out_.make_room(call.rows() * call.q.count * head_dim_);
  turn(call);
  // The kernel of tiles takes whole vectors.
  constexpr int64_t kVector = 16;
  if (options_.is_exact || call.tokens <= kFewTokens || head_dim_ % kVector != 0) {
    attend_each(call);
  } else {
    attend_tiles(call);
  }
  return out_.data();
}

// Queries are turned and scaled; turned keys and values go to the cache.
void FusedAttention::turn(const Call& call) const {
  const Turns turns(call.angles);
  const float q_scale = call.spec->scale_for(head_dim_);
  const nn::kernels::CacheKernel& cache = cache_kernel(call);
  const int64_t work = (call.q.count + 2 * call.k.count) * head_dim_;
  at::parallel_for(
      0, call.rows(), quant::rows_per_thread(4 * work), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t sequence = row / call.tokens, token = row % call.tokens;
          const int64_t angle = call.has_own_caches() ? sequence : token;
          const int64_t position = call.start(sequence) + token;
          const CacheRows rows(call, sequence, head_dim_);
          float *q = call.q.row(row), *k = call.k.row(row);
          const float* v = call.v.row(row);
          for (int64_t head = 0; head < call.q.count; ++head) {
            turns.apply(angle, q + head * head_dim_);
          }
          const float factor = call.query_factors == nullptr ? 1 : call.query_factors[angle];
          const float scale = q_scale * factor;
          for (int64_t i = 0; i < call.q.count * head_dim_; ++i) q[i] *= scale;
          if (call.has_keys) continue;
          for (int64_t head = 0; head < call.k.count; ++head) {
            const int64_t first = head * head_dim_;
            turns.apply(angle, k + first);
            cache.narrow(k + first, rows.key(head, position), head_dim_);
            cache.narrow(v + first, rows.value(head, position), head_dim_);
          }
        }
      });
}

void FusedAttention::attend_each(const Call& call) {
  const nn::kernels::CacheKernel& cache = cache_kernel(call);
  const int64_t heads = call.q.count, most = call.positions();
  const int64_t scores = nn::kernels::cached_scores(most);
  scores_.make_room(at::get_num_threads() * scores);
  const int64_t grain = quant::rows_per_thread(4 * most * head_dim_);
  at::parallel_for(0, call.rows() * heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin, count = 0; task < end; task += count) {
      const int64_t row = task / heads, head = task % heads;
      const int64_t sequence = row / call.tokens, token = row % call.tokens;
      const int64_t kv = call.spec->kv_of_head[static_cast<size_t>(head)];
      count = heads_beside(call, head, std::min(heads - head, end - task));
      const int64_t positions = call.start(sequence) + token + 1;
      const CacheRows rows(call, sequence, head_dim_);
      const int64_t seen =
          call.spec->window == 0 ? positions : std::min(positions, call.spec->window);
      nn::kernels::CachedHead cached;
      cached.queries = count;
      cached.positions = seen;
      cached.head_dim = head_dim_;
      cached.cap = static_cast<float>(call.spec->cap);
      if (call.sinks() != nullptr) cached.sinks = call.sinks() + head;
      cached.q = call.q.row(row) + head * head_dim_;
      cached.k = rows.key(kv, positions - seen);
      cached.v = rows.value(kv, positions - seen);
      cached.o = output(call, row, head);
      cache.attend(cached, scores_.data() + at::get_thread_num() * scores);
    }
  });
}

// Of its keys, or values, with those that fill up the last tile.
int64_t FusedAttention::numbers_of_head(const Call& call) const {
  return num_tiles(call.positions()) * kTile * head_dim_;
}

// Tiles that are not of float32 have a place for their values in float32, which the kernel of
// float32 reads. Packed numbers take half a float each.
int64_t FusedAttention::floats_of_head(const Call& call) const {
  const int64_t numbers = numbers_of_head(call);
  if (packed_ != nullptr) return (options_.rounds_scores ? 2 : 3) * numbers / 2;
  return is_float(call) ? numbers : 2 * numbers;
}

float* FusedAttention::key_tiles(const Call& call, int64_t sequence, int64_t kv) const {
  return keys_.data() + (sequence * call.k.count + kv) * floats_of_head(call);
}

float* FusedAttention::value_rows(const Call& call, int64_t sequence, int64_t kv) const {
  if (!is_float(call)) return key_tiles(call, sequence, kv) + floats_of_head(call) / 2;
  return static_cast<float*>(CacheRows(call, sequence, head_dim_).value(kv, 0));
}

uint32_t* FusedAttention::packed_keys(const Call& call, int64_t sequence, int64_t kv) const {
  return reinterpret_cast<uint32_t*>(key_tiles(call, sequence, kv));
}

// Null where it is lost.
uint32_t* FusedAttention::packed_low_keys(const Call& call, int64_t sequence, int64_t kv) const {
  if (options_.rounds_scores) return nullptr;
  return packed_keys(call, sequence, kv) + numbers_of_head(call) / 2;
}

uint32_t* FusedAttention::packed_values(const Call& call, int64_t sequence, int64_t kv) const {
  const int64_t keys = options_.rounds_scores ? 1 : 2;
  return packed_keys(call, sequence, kv) + keys * numbers_of_head(call) / 2;
}

// One tile of the cache's positions as the kernel wants it.
void FusedAttention::take_tile(const Call& call, int64_t sequence, int64_t kv, int64_t tile) const {
  thread_local core::Scratch<float> memory;
  float* const room = memory.make_room(kTile * head_dim_);
  const int64_t first = tile * kTile, count = std::min(kTile, call.positions() - first);
  const CacheRows held(call, sequence, head_dim_);
  const auto in_float = [&](const void* rows, float* to) -> const float* {
    if (is_float(call)) return static_cast<const float*>(rows);
    cache_kernel(call).widen(rows, to, count * head_dim_);
    return to;
  };
  const float* keys = in_float(held.key(kv, first), room);
  const int64_t at = first * head_dim_;
  if (packed_ == nullptr) {
    to_key_tile(keys, count, head_dim_, key_tiles(call, sequence, kv) + at);
    in_float(held.value(kv, first), value_rows(call, sequence, kv) + at);
    return;
  }
  uint32_t* const low = packed_low_keys(call, sequence, kv);
  packed_->pack_keys(keys, count, head_dim_, packed_keys(call, sequence, kv) + at / 2,
                     low == nullptr ? nullptr : low + at / 2);
  packed_->pack_values(in_float(held.value(kv, first), room), count, head_dim_,
                       packed_values(call, sequence, kv) + at / 2);
}

void FusedAttention::take_tiles(const Call& call) {
  const int64_t tiles = num_tiles(call.positions()), heads = call.batch * call.k.count;
  keys_.make_room(heads * floats_of_head(call));
  const int64_t first = first_tile(call.start(0), call.spec->window);
  at::parallel_for(0, heads * tiles, quant::rows_per_thread(4 * kTile * head_dim_),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t task = begin; task < end; ++task) {
                       const int64_t tile = task % tiles, head = task / tiles;
                       if (tile < first) continue;
                       take_tile(call, head / call.k.count, head % call.k.count, tile);
                     }
                   });
}

void FusedAttention::attend_tiles(const Call& call) {
  take_tiles(call);
  const int64_t tiles = num_tiles(call.tokens), heads = call.q.count;
  at::parallel_for(0, call.batch * heads * tiles, 1, [&](int64_t begin, int64_t end) {
    const TileMemory memory(head_dim_);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sequence = task / tiles / heads, head = task / tiles % heads;
      attend_tile(call, sequence, head, task % tiles * kTile, memory);
    }
  });
}

// Queries of the tokens from `first` on.
void FusedAttention::attend_tile(const Call& call, int64_t sequence, int64_t head, int64_t first,
                                 const TileMemory& memory) {
  const int64_t kv = call.spec->kv_of_head[static_cast<size_t>(head)];
  const int64_t row = sequence * call.tokens + first, own = head * head_dim_;
  nn::kernels::AttentionHead one;
  one.tokens = std::min(kTile, call.tokens - first);
  one.before = call.start(sequence) + first;
  one.head_dim = head_dim_;
  one.cap = static_cast<float>(call.spec->cap);
  if (call.sinks() != nullptr) one.sink = call.sinks()[head];
  one.window = call.spec->window == 0 ? call.positions() : call.spec->window;
  for (int64_t t = 0; t < one.tokens; ++t) {
    std::copy_n(call.q.row(row + t) + own, head_dim_, memory.q + t * head_dim_);
  }
  one.q = memory.q;
  one.o = memory.o;
  if (packed_ == nullptr) {
    one.kt = key_tiles(call, sequence, kv);
    one.v = value_rows(call, sequence, kv);
    nn::kernels::active_kernel().attend(one, memory.scratch);
  } else {
    one.packed_k = packed_keys(call, sequence, kv);
    one.packed_k_low = packed_low_keys(call, sequence, kv);
    one.packed_v = packed_values(call, sequence, kv);
    packed_->attend(one, memory.scratch);
  }
  for (int64_t t = 0; t < one.tokens; ++t) {
    std::copy_n(memory.o + t * head_dim_, head_dim_, output(call, row + t, head));
  }
}

}  // namespace weft::models
