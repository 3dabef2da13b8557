#include "bench/cuda/product_bench.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/cuda/plain_multiply.h"
#include "bench/cuda/tile_variants.h"
#include "bench/cuda/timing.h"
#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/kernels/multiply.h"

namespace weft::bench {
namespace {

using cuda::Buffer;
using cuda::Dtype;

// A kind of matrix: plain numbers, or codes in groups of 32 with float16 scales and offsets.
struct Form {
  const char* name;
  int32_t bits;
  Dtype numbers;
  int64_t bits_per_number() const {
    if (bits > 0) return bits;
    return numbers == Dtype::kF32 ? 32 : 16;
  }
};
constexpr Form kBf16 = {"bf16", 0, Dtype::kBF16}, kQ4 = {"q4", 4, Dtype::kF16};
constexpr Form kForms[] = {kBf16,
                           kQ4,
                           {"q8", 8, Dtype::kF16},
                           {"q6", 6, Dtype::kF16},
                           {"f16", 0, Dtype::kF16},
                           {"f32", 0, Dtype::kF32}};

struct Shape {
  int64_t out, in, count;
};
constexpr int64_t kWidth = 4096, kFfn = 14336, kVocab = 32000, kMostRows = 4096;

// What a matrix takes.
struct Layout {
  Form form;
  Shape shape;

  int64_t data_bytes() const { return shape.out * shape.in * form.bits_per_number() / 8; }
  int64_t scale_bytes() const { return form.bits == 0 ? 0 : shape.out * shape.in / 32 * 2; }
  int64_t bytes() const { return data_bytes() + 2 * scale_bytes(); }
  // With numbers, scales and offsets one after the other.
  cuda::MatrixView view(const uint8_t* from) const {
    cuda::MatrixView w;
    w.data = from;
    w.out = static_cast<int32_t>(shape.out);
    w.in = static_cast<int32_t>(shape.in);
    w.numbers = form.numbers;
    if (form.bits == 0) return w;
    w.bits = form.bits;
    w.units_per_group = 4;
    w.scale_numbers = Dtype::kF16;
    w.scales = from + data_bytes();
    w.offsets = from + data_bytes() + scale_bytes();
    return w;
  }
};

// Room for weights, from which each run takes others, and for rows.
struct Memory {
  Buffer weights = any_numbers(int64_t{640} << 20);
  Buffer x = any_numbers(kMostRows * kFfn * kFloat);
  Buffer y = Buffer(2 * kMostRows * kFfn * kFloat);
};

// Of run i, at a place of its own.
std::vector<cuda::Product> products_of(const Memory& memory, const Layout& layout, int64_t i,
                                       int64_t rows) {
  constexpr int64_t kAlign = 256;
  const int64_t step = (layout.bytes() + kAlign - 1) / kAlign * kAlign;
  const int64_t places = memory.weights.num_bytes() / step;
  std::vector<cuda::Product> products;
  for (int64_t k = 0; k < layout.shape.count; ++k) {
    const auto* from =
        memory.weights.as<const uint8_t>() + (i * layout.shape.count + k) % places * step;
    products.push_back({layout.view(from), memory.y.as<float>() + k * rows * layout.shape.out});
  }
  return products;
}

using Multiply = void (*)(std::span<const cuda::Product>, const float*, int64_t);

std::string named(const Layout& layout) {
  char text[64];
  std::snprintf(text, sizeof text, "%lld x %5lldx%-5lld %-4s |",
                static_cast<long long>(layout.shape.count),
                static_cast<long long>(layout.shape.out), static_cast<long long>(layout.shape.in),
                layout.form.name);
  return text;
}

void time_few_rows(const Memory& memory, const Layout& layout) {
  std::printf("%s", named(layout).c_str());
  const auto* x = memory.x.as<const float>();
  for (const int64_t rows : {1, 4, 8, 16}) {
    const double own = seconds_on_gpu(
        20, [&](int i) { cuda::multiply(products_of(memory, layout, i, rows), x, rows); });
    const double plain = seconds_on_gpu(20, [&](int i) {
      for (const auto& each : products_of(memory, layout, i, rows)) plain_multiply(each, x, rows);
    });
    const auto bytes = static_cast<double>(layout.shape.count * layout.bytes());
    std::printf(" %lld: %.1f us %.0f GB/s (plain %.1f)", static_cast<long long>(rows), own * 1e6,
                bytes / own / 1e9, plain * 1e6);
  }
  std::printf("\n");
}

void print_many_rows(const Memory& memory, const Layout& layout, Multiply multiply) {
  const auto* x = memory.x.as<const float>();
  for (const int64_t rows : {32, 512, 4096}) {
    const int count = rows > 512 ? 1 : 3;
    const double own = seconds_on_gpu(
        count, [&](int i) { multiply(products_of(memory, layout, i, rows), x, rows); });
    const double flops = 2.0 * static_cast<double>(rows * layout.shape.count) *
                         static_cast<double>(layout.shape.out * layout.shape.in);
    std::printf(" %lld: %.0f us %.1f TFLOP/s", static_cast<long long>(rows), own * 1e6,
                flops / own / 1e12);
  }
}

// A matrix of numbers of both signs, and rows, with their product in float64.
class Exact {
 public:
  explicit Exact(const Form& form)
      : layout_{form, {kOut, kWidth, 1}}, x_(random_floats(kRows * kWidth)) {
    host_.resize(static_cast<size_t>(layout_.bytes()));
    uint32_t state = 5;
    for (int64_t i = 0; i < layout_.data_bytes() / 4; ++i) put(i * 4, number(state));
    for (int64_t i = 0; i < layout_.scale_bytes() / 2; ++i) {
      // About 0.01, and the offset that makes numbers have both signs.
      const uint32_t scale = 0x2100U + (next_random(state) & 0xffU);
      const uint32_t offset = 0x8000U | (scale + static_cast<uint32_t>(form.bits - 1) * 0x400U);
      put(layout_.data_bytes() + i * 2, static_cast<uint16_t>(scale));
      put(layout_.data_bytes() + layout_.scale_bytes() + i * 2, static_cast<uint16_t>(offset));
    }
    weights_ = Buffer::of(std::span<const uint8_t>(host_));
    multiply_exactly();
  }

  // The norm of the error, as a part of that of the product.
  double error_of(Multiply multiply) const {
    const Buffer y(kRows * kOut * kFloat);
    const cuda::Product product = {layout_.view(weights_.as<const uint8_t>()), y.as<float>()};
    multiply({&product, 1}, x_.buffer.as<const float>(), kRows);
    std::vector<float> got(exact_.size());
    y.download(got.data(), y.num_bytes());
    double error = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += (got[i] - exact_[i]) * (got[i] - exact_[i]);
      all += exact_[i] * exact_[i];
    }
    return std::sqrt(error / all);
  }

 private:
  static constexpr int64_t kRows = 80, kOut = 300;

  template <class T>
  void put(int64_t at, T value) {
    std::memcpy(&host_[static_cast<size_t>(at)], &value, sizeof value);
  }
  // Four bytes of the matrix: codes, or numbers of magnitudes up to 1.
  uint32_t number(uint32_t& state) const {
    const uint32_t bits = next_random(state);
    if (layout_.form.bits > 0) return bits;
    if (layout_.form.numbers == Dtype::kF16) return (bits & 0x8fff8fffU) | 0x30003000U;
    if (layout_.form.numbers == Dtype::kBF16) return (bits & 0x80ff80ffU) | 0x3f003f00U;
    return (bits & 0x80ffffffU) | 0x3f000000U;
  }
  void multiply_exactly() {
    const cuda::MatrixView w = layout_.view(host_.data());
    exact_.resize(static_cast<size_t>(kRows * kOut));
    for (int32_t out = 0; out < w.out; ++out) {
      for (int32_t unit = 0; unit < w.in / cuda::kUnit; ++unit) {
        float v[cuda::kUnit];
        cuda::unit_values(w, out, unit, v);
        for (int64_t row = 0; row < kRows; ++row) {
          double& sum = exact_[static_cast<size_t>(row * kOut + out)];
          for (int i = 0; i < cuda::kUnit; ++i) {
            sum += double{v[i]} * x_.at(row * kWidth + unit * cuda::kUnit + i);
          }
        }
      }
    }
  }

  Layout layout_;
  Repeated x_;
  std::vector<uint8_t> host_;
  Buffer weights_;
  std::vector<double> exact_;
};

void time_variants(const Memory& memory, const Form& form, std::span<const TileVariant> variants) {
  const Exact exact(form);
  for (const TileVariant& each : variants) {
    std::printf("%-4s %-29s | error %.1e,", form.name, each.name, exact.error_of(each.multiply));
    print_many_rows(memory, {form, {kWidth, kWidth, 1}}, each.multiply);
    std::printf("\n");
  }
}

}  // namespace

void time_products() {
  const Memory memory;
  const Shape shapes[] = {
      {kWidth, kWidth, 1}, {kFfn, kWidth, 2}, {kWidth, kFfn, 1}, {kVocab, kWidth, 1}};
  for (const Form& form : {kQ4, kBf16}) {
    for (const Shape& shape : shapes) time_few_rows(memory, {form, shape});
  }
  for (const Form& form : kForms) {
    const double error = Exact(form).error_of(cuda::multiply);
    for (const Shape& shape : {shapes[1], shapes[2]}) {
      const Layout layout = {form, shape};
      std::printf("%s error %.1e,", named(layout).c_str(), error);
      print_many_rows(memory, layout, cuda::multiply);
      std::printf("\n");
    }
  }
  time_variants(memory, kBf16, bfloat16_variants());
  time_variants(memory, kQ4, four_bit_variants());
}

}  // namespace weft::bench
