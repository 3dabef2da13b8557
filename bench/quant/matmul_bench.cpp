#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "weft/quant/kernels/select.h"
#include "weft/quant/matmul.h"
#include "weft/quant/quantized_matrix.h"

/// Times matmul on the shapes of a 135M Llama, kernel by kernel, against libtorch's own float32
/// linear and against dequantizing first. Every line: medians of runs that take turns, so that a
/// change of the machine's speed meets all columns alike.
namespace {

using weft::quant::AffineTensor;
using weft::quant::Mode;
using weft::quant::QuantizedMatrix;
using weft::quant::kernels::Kernel;

struct Shape {
  const char* name;
  int64_t out;
  int64_t in;
  int64_t bits;
  bool is_symmetric;
  Mode mode = Mode::kAffine;
};

constexpr Shape kShapes[] = {{"q, o", 576, 576, 4, false},
                             {"k, v", 192, 576, 4, false},
                             {"gate, up", 1536, 576, 4, false},
                             {"down", 576, 1536, 4, false},
                             {"gate, up", 1536, 576, 6, false},
                             {"head", 49152, 576, 8, true},
                             {"4096 x 4096", 4096, 4096, 4, false},
                             {"gate, up", 1536, 576, 4, false, Mode::kMxfp4},
                             {"gate, up", 1536, 576, 8, false, Mode::kMxfp8},
                             {"gate, up", 1536, 576, 4, false, Mode::kNvfp4},
                             {"4096 x 4096", 4096, 4096, 4, false, Mode::kMxfp4},
                             {"4096 x 4096", 4096, 4096, 8, false, Mode::kMxfp8},
                             {"4096 x 4096", 4096, 4096, 4, false, Mode::kNvfp4}};

/// One column of the table.
struct Column {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;
};

double seconds_of(const std::function<void()>& run, int repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / repeats;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

QuantizedMatrix make_weight(const Shape& shape) {
  if (shape.mode != Mode::kAffine) {
    return weft::quant::quantize_microscaled(at::randn({shape.out, shape.in}), shape.mode);
  }
  AffineTensor w;
  w.bits = shape.bits;
  w.group_size = 32;
  w.packed = at::randint(256, {shape.out, shape.in * shape.bits / 8}, at::kByte);
  w.scales = (at::randn({shape.out, shape.in / 32}) * 0.01).to(at::kHalf);
  if (!shape.is_symmetric) w.offsets = at::randn({shape.out, shape.in / 32}).to(at::kHalf);
  return w;
}

/// A copy whose tensors have memory of their own.
QuantizedMatrix copy_of(QuantizedMatrix w) {
  for (const auto& part : weft::quant::parts_of(w)) *part.tensor = part.tensor->clone();
  return w;
}

/// Copies enough that they don't all stay in the cache, as the layers of a model do not.
std::vector<QuantizedMatrix> make_weights(const Shape& shape, int64_t bytes) {
  std::vector<QuantizedMatrix> weights = {make_weight(shape)};
  const int64_t one = weft::quant::num_bytes(weights[0]);
  for (int64_t total = one; total < bytes; total += one) weights.push_back(copy_of(weights[0]));
  return weights;
}

void measure(std::vector<Column>& columns) {
  constexpr int kRounds = 15;
  constexpr double kSecondsPerRun = 0.01;
  std::vector<int> repeats;
  for (auto& column : columns) {
    seconds_of(column.run, 1);
    const double once = seconds_of(column.run, 1);
    repeats.push_back(std::max(1, static_cast<int>(kSecondsPerRun / once)));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t c = 0; c < columns.size(); ++c) {
      columns[c].seconds.push_back(seconds_of(columns[c].run, repeats[c]));
    }
  }
}

void print_row(const Shape& shape, int64_t tokens, double work, const char* unit,
               const std::vector<Column>& columns) {
  std::printf("%-12s [%ld, %ld] %s %ld bits, %3ld tokens, %d threads:", shape.name, shape.out,
              shape.in, weft::quant::mode_info(shape.mode).name, shape.bits, tokens,
              at::get_num_threads());
  for (const auto& column : columns) {
    const double seconds = median(column.seconds);
    std::printf("  %s %.1f us %.1f %s", column.name.c_str(), seconds * 1e6, work / seconds * 1e-9,
                unit);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void bench_shape(const Shape& shape, int64_t tokens, const std::vector<QuantizedMatrix>& weights) {
  const at::Tensor x = at::randn({tokens, shape.in});
  size_t next = 0;
  std::vector<Column> columns;
  for (const Kernel* kernel : weft::quant::kernels::all_kernels()) {
    if (!kernel->runs_here()) continue;
    columns.push_back({kernel->name,
                       [&, kernel] {
                         std::visit([&](const auto& w) { weft::quant::matmul_on(*kernel, x, w); },
                                    weights[next]);
                         next = (next + 1) % weights.size();
                       },
                       {}});
  }
  const at::Tensor dense = weft::quant::dequantize(weights[0], at::kFloat);
  columns.push_back({"at::linear f32", [&] { at::linear(x, dense); }, {}});
  columns.push_back({"dequantize, at::linear",
                     [&] {
                       at::linear(x, weft::quant::dequantize(weights[next], at::kFloat));
                       next = (next + 1) % weights.size();
                     },
                     {}});
  measure(columns);
  const double flops = 2.0 * static_cast<double>(tokens * shape.out * shape.in);
  const bool is_decode = tokens == 1;
  print_row(shape, tokens,
            is_decode ? static_cast<double>(weft::quant::num_bytes(weights[0])) : flops,
            is_decode ? "GB/s" : "GFLOP/s", columns);
}

}  // namespace

/// Usage: bench_quant [MiB of weights to go round, default 64 [mode, default all]]
int main(int argc, char** argv) {
  const c10::InferenceMode guard;
  at::globalContext().setFloat32MatmulPrecision("medium");
  const int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  const std::string mode = argc > 2 ? argv[2] : "";
  for (const Shape& shape : kShapes) {
    if (!mode.empty() && mode != weft::quant::mode_info(shape.mode).name) continue;
    const auto weights = make_weights(shape, bytes);
    for (const int threads : {1, 2}) {
      at::set_num_threads(threads);
      for (const int64_t tokens : {1, 4, 8, 16, 512}) {
        if (shape.out * shape.in > 8'000'000 && tokens > 16) continue;
        bench_shape(shape, tokens, weights);
      }
    }
  }
}
