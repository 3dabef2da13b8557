// Attention's kernels alone, against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/needs_cuda.h"
#include "weft/core/error.h"
#include "weft/cuda/buffer.h"
#include "weft/cuda/kernels/attention.h"

namespace weft::cuda {
namespace {

class CudaAttention : public test::NeedsCuda {};

struct Sizes {
  int32_t batch = 1, tokens = 1, heads = 4, kv_heads = 2, head_dim = 16;
  int32_t start = 0, capacity = 0, window = 0;
  // Of a rank that has an uneven part of the heads; empty: even parts.
  std::vector<int32_t> kv_of_head = {};

  int32_t kv_of(int32_t head) const {
    return kv_of_head.empty() ? head * kv_heads / heads : kv_of_head[static_cast<size_t>(head)];
  }
  std::string text() const {
    return core::join(batch, " sequences, ", tokens, " tokens after ", start, " of ", capacity,
                      ", ", heads, " heads of ", head_dim, ", window ", window);
  }
};

constexpr float kScale = 0.25F;

// Numbers of a query, key or value head at a position, of such sizes that some scores stand out.
float number_of(int32_t kind, int32_t sequence, int32_t head, int32_t position, int32_t i) {
  const uint32_t seed = static_cast<uint32_t>(kind) * 7919U + static_cast<uint32_t>(sequence) * 31U;
  uint32_t state = (seed + static_cast<uint32_t>(head) * 101U) * 65537U +
                   static_cast<uint32_t>(position) * 257U + static_cast<uint32_t>(i);
  for (int round = 0; round < 3; ++round) state = (state ^ (state >> 15)) * 0x2c1b3c6dU + 12345U;
  return static_cast<float>(state >> 8) * 0x1p-22F - 2.0F;
}
enum Kind { kQuery, kKey, kValue };

// Rows [batch * tokens, heads * head_dim].
std::vector<float> rows_of(const Sizes& sizes, Kind kind, int32_t heads) {
  std::vector<float> rows;
  for (int32_t row = 0; row < sizes.batch * sizes.tokens; ++row) {
    for (int32_t head = 0; head < heads; ++head) {
      for (int32_t i = 0; i < sizes.head_dim; ++i) {
        rows.push_back(
            number_of(kind, row / sizes.tokens, head, sizes.start + row % sizes.tokens, i));
      }
    }
  }
  return rows;
}

// A cache whose positions before the pass are filled; behind them are NaNs.
Buffer cache_of(const Sizes& sizes, Kind kind) {
  std::vector<float> numbers;
  for (int32_t sequence = 0; sequence < sizes.batch; ++sequence) {
    for (int32_t head = 0; head < sizes.kv_heads; ++head) {
      for (int32_t at = 0; at < sizes.capacity; ++at) {
        for (int32_t i = 0; i < sizes.head_dim; ++i) {
          numbers.push_back(at < sizes.start ? number_of(kind, sequence, head, at, i) : NAN);
        }
      }
    }
  }
  return Buffer::of(std::span<const float>(numbers));
}

std::vector<float> attend_on_gpu(const Sizes& sizes) {
  const auto upload = [](const std::vector<float>& numbers) {
    return Buffer::of(std::span<const float>(numbers));
  };
  const Buffer q = upload(rows_of(sizes, kQuery, sizes.heads));
  const Buffer k = upload(rows_of(sizes, kKey, sizes.kv_heads));
  const Buffer v = upload(rows_of(sizes, kValue, sizes.kv_heads));
  const Buffer keys = cache_of(sizes, kKey), values = cache_of(sizes, kValue);
  std::vector<int32_t> integers = {sizes.start};
  for (int32_t head = 0; head < sizes.heads; ++head) integers.push_back(sizes.kv_of(head));
  const Buffer start = Buffer::of(std::span<const int32_t>(integers));
  const Buffer out(q.num_bytes());
  AttentionCall call;
  call.q = q.as<float>();
  call.k = k.as<const float>();
  call.v = v.as<const float>();
  call.keys = keys.as<float>();
  call.values = values.as<float>();
  call.start = start.as<const int32_t>();
  call.kv_of_head = call.start + 1;
  call.out = out.as<float>();
  call.rows = sizes.batch * sizes.tokens;
  call.tokens = sizes.tokens;
  call.heads = sizes.heads;
  call.kv_heads = sizes.kv_heads;
  call.head_dim = sizes.head_dim;
  call.capacity = sizes.capacity;
  call.window = sizes.window;
  call.scale = kScale;
  const Buffer scratch(attention_scratch(call) * static_cast<int64_t>(sizeof(float)));
  call.scratch = scratch.as<float>();
  attend(call);
  std::vector<float> got(static_cast<size_t>(out.num_bytes()) / sizeof(float));
  out.download(got.data(), out.num_bytes());
  return got;
}

// One head of one row.
std::vector<double> plain_head(const Sizes& sizes, int32_t sequence, int32_t token, int32_t head) {
  const int32_t at = sizes.start + token, kv = sizes.kv_of(head);
  const int32_t begin = sizes.window == 0 ? 0 : std::max(0, at + 1 - sizes.window);
  std::vector<double> scores, out(static_cast<size_t>(sizes.head_dim));
  for (int32_t position = begin; position <= at; ++position) {
    double dot = 0;
    for (int32_t i = 0; i < sizes.head_dim; ++i) {
      dot += double{number_of(kQuery, sequence, head, at, i)} * kScale *
             number_of(kKey, sequence, kv, position, i);
    }
    scores.push_back(dot);
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - most);
  for (int32_t position = begin; position <= at; ++position) {
    const double share = scores[static_cast<size_t>(position - begin)] / total;
    for (int32_t i = 0; i < sizes.head_dim; ++i) {
      out[static_cast<size_t>(i)] += share * number_of(kValue, sequence, kv, position, i);
    }
  }
  return out;
}

void expect_plain_attention(const Sizes& sizes) {
  const std::vector<float> got = attend_on_gpu(sizes);
  double worst = 0;
  for (int32_t row = 0; row < sizes.batch * sizes.tokens; ++row) {
    for (int32_t head = 0; head < sizes.heads; ++head) {
      const auto expected = plain_head(sizes, row / sizes.tokens, row % sizes.tokens, head);
      const auto* own = &got[static_cast<size_t>((row * sizes.heads + head) * sizes.head_dim)];
      for (size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(own[i] - expected[i]);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
  }
  // Values are at most 2, scores up to a few dozens.
  EXPECT_LE(worst, 1e-4) << sizes.text();
}

TEST_F(CudaAttention, OneTokenAfterAnyNumberOfPositionsIsPlainAttention) {
  for (const int32_t start : {0, 1, 31, 127, 128, 129, 300, 1000}) {
    for (const int32_t window : {0, 5, 130}) {
      expect_plain_attention({.start = start, .capacity = start + 1, .window = window});
    }
  }
}

TEST_F(CudaAttention, HeadsOfAllSizesAreAttendedTo) {
  for (const int32_t tokens : {3, 19}) {
    for (const int32_t head_dim : {8, 64, 72, 128, 256}) {
      expect_plain_attention(
          {.batch = 2, .tokens = tokens, .head_dim = head_dim, .start = 140, .capacity = 170});
    }
  }
}

TEST_F(CudaAttention, HeadsShareKeysEvenlyOrNot) {
  for (const int32_t tokens : {2, 18}) {
    for (const int32_t heads : {1, 3, 6, 7, 8}) {
      expect_plain_attention(
          {.tokens = tokens, .heads = heads, .kv_heads = 1, .start = 130, .capacity = 150});
    }
    Sizes uneven = {.tokens = tokens, .heads = 7, .kv_heads = 3, .start = 130, .capacity = 150};
    uneven.kv_of_head = {0, 1, 1, 1, 1, 1, 2};
    expect_plain_attention(uneven);
  }
}

TEST_F(CudaAttention, PromptsOfAnyLengthArePlainAttention) {
  for (const int32_t tokens : {17, 33, 64, 130}) {
    for (const int32_t start : {0, 7, 90}) {
      for (const int32_t window : {0, 3, 40}) {
        expect_plain_attention({.batch = 2,
                                .tokens = tokens,
                                .heads = 2,
                                .kv_heads = 1,
                                .start = start,
                                .capacity = start + tokens + 3,
                                .window = window});
      }
    }
  }
}

// Whatever else a pass has, and however large the cache is.
TEST_F(CudaAttention, FewTokensHaveTheBitsOfOne) {
  for (const int32_t window : {0, 150}) {
    const Sizes few = {.batch = 2, .tokens = 16, .start = 250, .capacity = 266, .window = window};
    const std::vector<float> all = attend_on_gpu(few);
    const size_t size = static_cast<size_t>(few.heads) * static_cast<size_t>(few.head_dim);
    for (int32_t token = 0; token < few.tokens; ++token) {
      Sizes one = few;
      one.tokens = 1;
      one.start += token;
      one.capacity = token % 2 == 0 ? one.start + 1 : 40 * one.start;
      const std::vector<float> alone = attend_on_gpu(one);
      for (int32_t sequence = 0; sequence < few.batch; ++sequence) {
        const auto row = static_cast<size_t>(sequence * few.tokens + token);
        EXPECT_TRUE(std::equal(&all[row * size], &all[(row + 1) * size],
                               &alone[static_cast<size_t>(sequence) * size]))
            << token << " of sequence " << sequence << ", window " << window;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cuda
