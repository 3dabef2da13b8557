#include "weft/nn/attention/kv_cache.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;
using testing::error_text;

KvCache make_cache() {
  return KvCache({.num_layers = 2, .batch = 1, .num_kv_heads = 3, .head_dim = 4, .capacity = 8});
}

at::Tensor tokens(int64_t count, uint64_t seed) {
  return seeded({1, 3, count, 4}, seed, at::kFloat);
}

TEST(KvCache, KeepsEachLayersPositionsInOrder) {
  KvCache cache = make_cache();
  EXPECT_EQ(cache.num_bytes(), 2 * 2 * 3 * 8 * 4 * 4);
  for (const int64_t layer : {0, 1}) cache.append(layer, tokens(5, layer), tokens(5, 10 + layer));
  EXPECT_EQ(cache.length(), 0) << "counted once all layers have theirs";
  cache.advance(5);
  for (const int64_t layer : {0, 1}) {
    const auto [k, v] = cache.append(layer, tokens(2, 20 + layer), tokens(2, 30 + layer));
    expect_close(k, at::cat({tokens(5, layer), tokens(2, 20 + layer)}, 2), "keys", 0);
    expect_close(v, at::cat({tokens(5, 10 + layer), tokens(2, 30 + layer)}, 2), "values", 0);
  }
  cache.advance(2);
  EXPECT_EQ(cache.length(), 7);
}

TEST(KvCache, GrowsWithWhatItKeeps) {
  KvCache cache({.num_layers = 3,
                 .batch = 1,
                 .num_kv_heads = 3,
                 .head_dim = 4,
                 .capacity = 5,
                 .states = {{}, {{2, 3}}, {}}});
  for (const int64_t layer : {0, 2}) cache.append(layer, tokens(5, layer), tokens(5, 10 + layer));
  cache.advance(5);
  cache.state(1).front().fill_(7);
  cache.grow(9);
  EXPECT_EQ(cache.capacity(), 9);
  EXPECT_EQ(cache.length(), 5);
  EXPECT_TRUE(cache.state(1).front().eq(7).all().item<bool>());
  for (const int64_t layer : {0, 2}) {
    const auto [k, v] = cache.append(layer, tokens(4, 20 + layer), tokens(4, 30 + layer));
    expect_close(k, at::cat({tokens(5, layer), tokens(4, 20 + layer)}, 2), "keys", 0);
    expect_close(v, at::cat({tokens(5, 10 + layer), tokens(4, 30 + layer)}, 2), "values", 0);
    EXPECT_EQ(cache.keys(layer), k.data_ptr());
  }
  EXPECT_EQ(error_text([&] { cache.grow(8); }),
            "InternalError: nn.KvCache.grow: to 8 positions from 9");
}

TEST(KvCache, RoundsToItsType) {
  KvCache cache(
      {.num_layers = 1, .num_kv_heads = 3, .head_dim = 4, .capacity = 8, .dtype = at::kHalf});
  EXPECT_EQ(cache.dtype(), at::kHalf);
  EXPECT_EQ(cache.num_bytes(), 2 * 3 * 8 * 4 * 2);
  const auto [k, v] = cache.append(0, tokens(5, 1), tokens(5, 2));
  EXPECT_TRUE(at::equal(k, tokens(5, 1).to(at::kHalf)));
  EXPECT_TRUE(at::equal(v, tokens(5, 2).to(at::kHalf)));
}

TEST(KvCache, KeepsBlocksOf8Bits) {
  KvCache cache(
      {.num_layers = 1, .num_kv_heads = 3, .head_dim = 64, .capacity = 8, .dtype = at::kChar});
  EXPECT_EQ(cache.num_bytes(), 2 * 3 * 8 * 2 * 36);
  const at::Tensor rows = seeded({1, 3, 6, 64}, 1, at::kFloat), values = rows.neg();
  cache.append(0, rows.narrow(2, 0, 5), values.narrow(2, 0, 5));
  cache.advance(5);
  const auto [k, v] = cache.append(0, rows.narrow(2, 5, 1), values.narrow(2, 5, 1));
  const at::Tensor blocks = rows.unflatten(-1, {2, 32});
  const at::Tensor scale = blocks.abs().amax(-1, true) / 127;
  expect_close(k, (at::round(blocks / scale) * scale).flatten(-2), "keys", 1e-6);
  EXPECT_TRUE(at::equal(v, k.neg()));
  KvCache copy(
      {.num_layers = 1, .num_kv_heads = 3, .head_dim = 64, .capacity = 8, .dtype = at::kChar});
  cache.advance(1);
  copy.append_copy(cache, 2, 4);
  EXPECT_TRUE(at::equal(copy.appended(0, 0).first, k.narrow(2, 2, 4)));
  EXPECT_EQ(error_text([] {
              KvCache({.num_layers = 1,
                       .num_kv_heads = 1,
                       .head_dim = 24,
                       .capacity = 1,
                       .dtype = at::kChar});
            }),
            "ConfigError: nn.KvCache: heads of 24 numbers in 8 bits, expected a multiple of 32; "
            "keep them in 16 bits");
}

TEST(KvCache, KeepsKeysAloneWhereThereAreNoValues) {
  KvCache cache({.num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .capacity = 8, .value_dim = 0});
  EXPECT_EQ(cache.num_bytes(), 2 * 3 * 8 * 4 * 4);
  const auto [k, v] = cache.append(1, tokens(5, 1), {});
  EXPECT_TRUE(at::equal(k, tokens(5, 1)));
  EXPECT_EQ(v.sizes(), at::IntArrayRef({1, 3, 5, 0}));
}

TEST(KvCache, ForgetsWhatIsTruncated) {
  KvCache cache = make_cache();
  cache.append(0, tokens(6, 1), tokens(6, 2));
  cache.advance(6);
  cache.truncate(2);
  EXPECT_EQ(cache.length(), 2);
  const auto [k, v] = cache.append(0, tokens(1, 3), tokens(1, 4));
  expect_close(k, at::cat({tokens(6, 1).narrow(2, 0, 2), tokens(1, 3)}, 2), "keys", 0);
  expect_close(v, at::cat({tokens(6, 2).narrow(2, 0, 2), tokens(1, 4)}, 2), "values", 0);
  EXPECT_EQ(error_text([&] { cache.truncate(3); }),
            "InternalError: nn.KvCache: truncate to 3 of 2");
}

TEST(KvCache, TakesOverPositionsOfAnother) {
  KvCache whole = make_cache();
  for (const int64_t layer : {0, 1}) whole.append(layer, tokens(6, layer), tokens(6, 10 + layer));
  whole.advance(6);
  KvCache page({.num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .capacity = 2});
  page.append_copy(whole, 3, 2);
  EXPECT_EQ(page.length(), 2);
  KvCache other = make_cache();
  other.append_copy(whole, 0, 3);
  other.append_copy(page, 0, 2);
  for (const int64_t layer : {0, 1}) {
    const auto [k, v] = other.append(layer, tokens(1, 5), tokens(1, 6));
    EXPECT_TRUE(at::equal(k.narrow(2, 0, 5), tokens(6, layer).narrow(2, 0, 5)));
    EXPECT_TRUE(at::equal(v.narrow(2, 0, 5), tokens(6, 10 + layer).narrow(2, 0, 5)));
  }
  EXPECT_EQ(error_text([&] { page.append_copy(whole, 0, 1); }),
            "ConfigError: nn.KvCache: 3 positions, expected at most 2; use a larger --ctx-size or "
            "fewer tokens");
  EXPECT_EQ(error_text([&] { other.append_copy(whole, 5, 2); }),
            "InternalError: nn.KvCache.append_copy: positions 5 to 7 of 6");
}

TEST(KvCache, KeepsHeadsOfEachLayersOwnNumberAndSize) {
  const auto make = [](int64_t capacity) {
    return KvCache(
        {.num_layers = 4, .capacity = capacity, .heads = {{3, 4}, {1, 6}, {0, 4}, {3, 4}}});
  };
  KvCache cache = make(8);
  EXPECT_EQ(cache.num_bytes(), 2 * 8 * (2 * 3 * 4 + 6) * 4);
  const at::Tensor other = seeded({1, 1, 5, 6}, 9, at::kFloat);
  cache.append(0, tokens(5, 1), tokens(5, 2));
  cache.append(1, other, other);
  cache.append(3, tokens(5, 3), tokens(5, 4));
  EXPECT_TRUE(at::equal(cache.appended(0, 5).second, tokens(5, 2)))
      << "for layer 2, which has none";
  cache.advance(5);
  KvCache copy = make(6);
  copy.append_copy(cache, 1, 3);
  EXPECT_TRUE(at::equal(copy.appended(0, 0).first, tokens(5, 1).narrow(2, 1, 3)));
  EXPECT_TRUE(at::equal(copy.appended(1, 0).first, other.narrow(2, 1, 3)));
  EXPECT_TRUE(at::equal(copy.appended(3, 0).second, tokens(5, 4).narrow(2, 1, 3)));
  const auto* keys = static_cast<const float*>(cache.keys(3));
  EXPECT_EQ(keys[0], tokens(5, 3).flatten()[0].item<float>());
}

// Layers 0 and 2 have keys, layer 1 a state of two tensors.
KvCache make_mixed_cache() {
  return KvCache({.num_layers = 3,
                  .batch = 2,
                  .num_kv_heads = 3,
                  .head_dim = 4,
                  .capacity = 8,
                  .states = {{}, {{5}, {2, 3}}, {}}});
}

TEST(KvCache, KeepsStatesBesideKeys) {
  KvCache cache = make_mixed_cache();
  EXPECT_EQ(cache.num_bytes(), 2 * 2 * 2 * 3 * 8 * 4 * 4 + 2 * (5 + 6) * 4);
  EXPECT_TRUE(cache.state(0).empty());
  ASSERT_EQ(cache.state(1).size(), 2U);
  EXPECT_EQ(cache.state(1)[1].sizes(), (at::IntArrayRef{2, 2, 3}));
  const at::Tensor first = seeded({2, 3, 2, 4}, 1, at::kFloat);
  const at::Tensor last = seeded({2, 3, 2, 4}, 2, at::kFloat);
  cache.append(0, first, first);
  EXPECT_TRUE(at::equal(cache.append(2, last, last).first, last));
  EXPECT_TRUE(at::equal(cache.append(0, first, first).second, first)) << "has its own place";
}

TEST(KvCache, KeepsAllOrNothingOfStates) {
  KvCache cache = make_mixed_cache();
  cache.state(1)[0].fill_(7);
  cache.advance(5);
  EXPECT_EQ(cache.most_kept(5), 5);
  EXPECT_EQ(cache.most_kept(4), 0);
  EXPECT_EQ(make_cache().most_kept(4), 4);
  cache.truncate(5);
  EXPECT_EQ(cache.state(1)[0].sum().item<float>(), 70);
  EXPECT_EQ(error_text([&] { cache.truncate(4); }),
            "InternalError: nn.KvCache: truncate to 4 of 5 with states, expected all or none");
  cache.truncate(0);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.state(1)[0].sum().item<float>(), 0);
}

TEST(KvCache, RefusesMoreThanItsCapacity) {
  KvCache cache = make_cache();
  cache.append(0, tokens(8, 1), tokens(8, 2));
  cache.advance(8);
  EXPECT_EQ(error_text([&] { cache.append(0, tokens(1, 1), tokens(1, 2)); }),
            "ConfigError: nn.KvCache: 9 positions, expected at most 8; use a larger --ctx-size or "
            "fewer tokens");
  EXPECT_EQ(error_text([] { KvCache({.num_layers = 1}); }),
            "ConfigError: nn.KvCache: capacity 0, expected at least 1 position");
}

}  // namespace
}  // namespace weft::nn
