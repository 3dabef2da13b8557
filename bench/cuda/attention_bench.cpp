#include "bench/cuda/attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "bench/cuda/timing.h"
#include "weft/cuda/kernels/attention.h"

namespace weft::bench {
namespace {

using cuda::Buffer;

constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;

struct Sizes {
  int64_t batch, tokens, start, capacity;
};

// One layer's attention with all that it reads.
class Attention {
 public:
  explicit Attention(const Sizes& sizes)
      : sizes_(sizes),
        q_(random_floats(rows() * kHeads * kHeadDim)),
        k_(random_floats(rows() * kKvHeads * kHeadDim)),
        keys_(random_floats(sizes.batch * kKvHeads * sizes.capacity * kHeadDim)),
        values_(random_floats(sizes.batch * kKvHeads * sizes.capacity * kHeadDim)),
        out_(rows() * kHeads * kHeadDim * kFloat) {
    std::vector<int32_t> numbers = {static_cast<int32_t>(sizes.start)};
    for (int32_t head = 0; head < kHeads; ++head) {
      numbers.push_back(head / static_cast<int32_t>(kHeads / kKvHeads));
    }
    numbers_ = Buffer::of(std::span<const int32_t>(numbers));
    scratch_ = Buffer(std::max<int64_t>(cuda::attention_scratch(call()) * kFloat, kFloat));
  }

  // Without scale and turning, as queries are turned in place, run for run.
  cuda::AttentionCall call() const {
    cuda::AttentionCall call;
    call.q = q_.buffer.as<float>();
    call.k = call.v = k_.buffer.as<const float>();
    call.keys = keys_.buffer.as<float>();
    call.values = values_.buffer.as<float>();
    call.start = numbers_.as<const int32_t>();
    call.kv_of_head = call.start + 1;
    call.out = out_.as<float>();
    call.scratch = scratch_.as<float>();
    call.rows = static_cast<int32_t>(rows());
    call.tokens = static_cast<int32_t>(sizes_.tokens);
    call.heads = kHeads;
    call.kv_heads = kKvHeads;
    call.head_dim = kHeadDim;
    call.capacity = static_cast<int32_t>(sizes_.capacity);
    return call;
  }
  int64_t rows() const { return sizes_.batch * sizes_.tokens; }

  // The norm of the error of some heads against float64, as a part of that of the output.
  double error() const {
    cuda::attend(call());
    std::vector<float> got(static_cast<size_t>(rows() * kHeads * kHeadDim));
    out_.download(got.data(), out_.num_bytes());
    double error = 0, all = 0;
    for (const int64_t token : {sizes_.tokens / 3, sizes_.tokens - 1}) {
      for (const int64_t head : {0, 13, 31}) {
        const std::vector<double> exact = exact_head(token, head);
        for (size_t i = 0; i < exact.size(); ++i) {
          const size_t at = static_cast<size_t>((token * kHeads + head) * kHeadDim) + i;
          error += (got[at] - exact[i]) * (got[at] - exact[i]);
          all += exact[i] * exact[i];
        }
      }
    }
    return std::sqrt(error / all);
  }

 private:
  // Number i of a position's key or value, of the first sequence.
  double cached(const Repeated& cache, int64_t kv, int64_t position, int64_t i) const {
    const int64_t token = position - sizes_.start;
    if (token >= 0) return k_.at((token * kKvHeads + kv) * kHeadDim + i);
    return cache.at((kv * sizes_.capacity + position) * kHeadDim + i);
  }
  std::vector<double> exact_head(int64_t token, int64_t head) const {
    const int64_t kv = head / (kHeads / kKvHeads);
    std::vector<double> scores, out(kHeadDim);
    for (int64_t position = 0; position <= sizes_.start + token; ++position) {
      double dot = 0;
      for (int64_t i = 0; i < kHeadDim; ++i) {
        dot += q_.at((token * kHeads + head) * kHeadDim + i) * cached(keys_, kv, position, i);
      }
      scores.push_back(dot);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& each : scores) total += each = std::exp(each - most);
    for (size_t position = 0; position < scores.size(); ++position) {
      for (int64_t i = 0; i < kHeadDim; ++i) {
        out[static_cast<size_t>(i)] +=
            scores[position] / total * cached(values_, kv, static_cast<int64_t>(position), i);
      }
    }
    return out;
  }

  Sizes sizes_;
  Repeated q_, k_, keys_, values_;
  Buffer out_, numbers_, scratch_;
};

void time_one_token(const Sizes& sizes) {
  const Attention attention(sizes);
  const double error = attention.error();
  const double own = seconds_on_gpu(20, [&](int) { cuda::attend(attention.call()); });
  const double bytes = static_cast<double>(sizes.batch * kKvHeads * (sizes.start + 1)) *
                       static_cast<double>(2 * kHeadDim * kFloat);
  std::printf("attend: %lld x %lld tokens after %6lld of %6lld | error %.1e, %.1f us %.0f GB/s\n",
              static_cast<long long>(sizes.batch), static_cast<long long>(sizes.tokens),
              static_cast<long long>(sizes.start), static_cast<long long>(sizes.capacity), error,
              own * 1e6, bytes / own / 1e9);
}

void time_prompt(const Sizes& sizes) {
  const Attention attention(sizes);
  const double error = attention.error();
  const double own = seconds_on_gpu(3, [&](int) { cuda::attend(attention.call()); });
  const double pairs =
      static_cast<double>(sizes.tokens) *
      (static_cast<double>(sizes.start) + static_cast<double>(sizes.tokens + 1) / 2);
  const double flops = 4.0 * static_cast<double>(sizes.batch * kHeads * kHeadDim) * pairs;
  std::printf("attend: prompt of %lld after %lld | error %.1e, %.0f us %.1f TFLOP/s\n",
              static_cast<long long>(sizes.tokens), static_cast<long long>(sizes.start), error,
              own * 1e6, flops / own / 1e12);
}

}  // namespace

void time_attention() {
  constexpr int64_t kLong = 128 << 10;
  for (const int64_t positions : {512, 8 << 10, 32 << 10, 128 << 10}) {
    time_one_token({1, 1, positions - 1, positions});
  }
  time_one_token({1, 1, 511, kLong});
  time_one_token({16, 1, 2047, 2048});
  time_one_token({1, 16, 2032, 2048});
  time_prompt({1, 512, 0, 512});
  time_prompt({1, 4096, 0, 4096});
  time_prompt({1, 512, 8192, 8704});
}

}  // namespace weft::bench
