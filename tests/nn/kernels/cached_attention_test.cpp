#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/kernels/select.h"

// Attention of one token over a cache, and what becomes of the numbers that it keeps.

namespace weft::nn::kernels {
namespace {

using test::expect_close;
using test::seeded;

const CacheKernel& cache_kernel(const Kernel& kernel, at::ScalarType cache_type) {
  if (cache_type == at::kChar) return kernel.byte_cache;
  return cache_type == at::kHalf ? kernel.float16_cache : kernel.float32_cache;
}

// Random rows of a cache, and the numbers that they stand for.
struct CachedRows {
  at::Tensor kept, numbers;

  CachedRows(int64_t positions, int64_t head_dim, int seed, at::ScalarType type) {
    const at::Tensor rows = seeded({positions, head_dim}, seed, at::kFloat);
    numbers = at::empty_like(rows);
    kept = at::empty({positions, KvCache::row_bytes(type, head_dim)}, at::kByte);
    const CacheKernel& kernel = cache_kernel(*runnable_kernels().back(), type);
    kernel.narrow(rows.const_data_ptr<float>(), kept.mutable_data_ptr(), rows.numel());
    kernel.widen(kept.const_data_ptr(), numbers.mutable_data_ptr<float>(), rows.numel());
  }
};

// Queries of one token, together and each alone, over a cache of this type.
void check_cached(int64_t queries, int64_t positions, int64_t head_dim, at::ScalarType cache_type,
                  double cap = 0) {
  const CachedRows k(positions, head_dim, 2, cache_type), v(positions, head_dim, 3, cache_type);
  const at::Tensor q = seeded({queries, head_dim}, 1);
  at::Tensor expected_scores = at::matmul(q, k.numbers.to(at::kDouble).t());
  const at::Tensor sinks = seeded({queries, 1}, 4), sinks_ = sinks.to(at::kFloat);
  if (cap != 0) expected_scores = at::cat({at::tanh(expected_scores / cap) * cap, sinks}, -1);
  const at::Tensor expected =
      at::matmul(expected_scores.softmax(-1).narrow(-1, 0, positions), v.numbers.to(at::kDouble));
  const at::Tensor q_ = q.to(at::kFloat);
  const at::Tensor o = at::full({queries, head_dim}, NAN), alone = at::full_like(o, NAN);
  const at::Tensor scores = at::full({cached_scores(positions)}, NAN);
  CachedHead head;
  head.queries = queries;
  head.positions = positions;
  head.head_dim = head_dim;
  head.q = q_.const_data_ptr<float>();
  head.k = k.kept.const_data_ptr();
  head.v = v.kept.const_data_ptr();
  head.o = o.mutable_data_ptr<float>();
  head.cap = static_cast<float>(cap);
  if (cap != 0) head.sinks = sinks_.const_data_ptr<float>();
  for (const Kernel* kernel : runnable_kernels()) {
    const auto attend = cache_kernel(*kernel, cache_type).attend;
    const std::string where = core::join(kernel->name, ", ", c10::toString(cache_type), ": ",
                                         queries, " x ", positions, " x ", head_dim);
    o.fill_(NAN);
    alone.fill_(NAN);
    attend(head, scores.mutable_data_ptr<float>());
    expect_close(o, expected, where, 1e-5);
    for (int64_t i = 0; i < queries; ++i) {
      CachedHead one = head;
      one.queries = 1;
      if (cap != 0) one.sinks += i;
      one.q += i * head_dim;
      one.o = alone.mutable_data_ptr<float>() + i * head_dim;
      attend(one, scores.mutable_data_ptr<float>());
    }
    EXPECT_TRUE(at::equal(o, alone)) << where << ": a query's result depends on the others";
  }
}

TEST(Kernels, AttendOneTokenOfACache) {
  for (const at::ScalarType cache_type : {at::kFloat, at::kHalf}) {
    for (const int64_t queries : {1, 2, 3, 4, 5, 8, 15}) {
      for (const int64_t positions : {1, 2, 5, 15, 16, 17, 32, 33, 100}) {
        for (const int64_t head_dim : {7, 16, 64, 72, 80}) {
          check_cached(queries, positions, head_dim, cache_type);
        }
      }
    }
  }
}

TEST(Kernels, AttendOneTokenOfACacheOf8Bits) {
  for (const int64_t queries : {1, 2, 3, 4, 5, 8, 15}) {
    for (const int64_t positions : {1, 2, 5, 15, 16, 17, 32, 33, 100}) {
      for (const int64_t head_dim : {32, 64, 96, 128}) {
        check_cached(queries, positions, head_dim, at::kChar);
      }
    }
  }
}

TEST(Kernels, AttendOneTokenOfACacheWithCapAndSinks) {
  for (const at::ScalarType cache_type : {at::kFloat, at::kHalf, at::kChar}) {
    for (const int64_t queries : {1, 3, 5}) {
      for (const int64_t positions : {1, 17, 100})
        check_cached(queries, positions, cache_type == at::kChar ? 96 : 72, cache_type, 2);
    }
  }
}

// As libtorch rounds them: a block's largest number becomes 127 or -127.
TEST(Kernels, NarrowTo8BitsByBlocks) {
  at::Tensor x = seeded({7, kByteBlock}, 5, at::kFloat);
  x[1] = 0;
  x[2] *= 1e30F;
  x[3] *= 1e-30F;
  const at::Tensor scale = x.abs().amax(1, true) / 127;
  const at::Tensor expected = at::round(x / scale).nan_to_num(0) * scale;
  at::Tensor bytes = at::empty({7, static_cast<int64_t>(sizeof(ByteBlock))}, at::kByte);
  at::Tensor numbers = at::empty_like(x);
  for (const Kernel* kernel : runnable_kernels()) {
    const CacheKernel& cache = kernel->byte_cache;
    cache.narrow(x.const_data_ptr<float>(), bytes.mutable_data_ptr(), x.numel());
    cache.widen(bytes.const_data_ptr(), numbers.mutable_data_ptr<float>(), x.numel());
    EXPECT_TRUE(((numbers - expected).abs() <= expected.abs() * 1e-6).all().item<bool>())
        << kernel->name;
    for (const float bad : {NAN, INFINITY}) {
      at::Tensor broken = x.clone();
      broken[4][9] = bad;
      cache.narrow(broken.const_data_ptr<float>(), bytes.mutable_data_ptr(), x.numel());
      cache.widen(bytes.const_data_ptr(), numbers.mutable_data_ptr<float>(), x.numel());
      EXPECT_TRUE(numbers[4].isnan().all().item<bool>()) << kernel->name << ", " << bad;
      EXPECT_EQ(numbers.isnan().sum().item<int64_t>(), kByteBlock) << kernel->name;
    }
  }
}

}  // namespace
}  // namespace weft::nn::kernels
