#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/plain_multiply.h"
#include "weft/core/error.h"
#include "weft/cuda/buffer.h"
#include "weft/cuda/device.h"
#include "weft/cuda/graph.h"
#include "weft/cuda/kernels/attention.h"
#include "weft/cuda/kernels/multiply.h"
#include "weft/cuda/kernels/rows.h"
#include "weft/cuda/runtime.h"

/// Times the kernels on the shapes of an 8B Llama, and what passes between the processor and the
/// GPU for each token. Kernels run many to a graph, each on other weights, so that neither the
/// processor nor the GPU's cache makes a difference. Medians.
namespace {

using namespace weft;
using cuda::Buffer;

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kWidth = 4096, kFfn = 14336, kVocab = 32000, kHeads = 32, kKvHeads = 8,
                  kHeadDim = 128;
constexpr int kRuns = 5;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Numbers that are neither large nor NaN, whatever they are read as.
Buffer filled(int64_t bytes) {
  constexpr int64_t kPiece = 1 << 22;
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(bytes, kPiece)));
  uint32_t state = 1;
  for (uint8_t& byte : piece) {
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24 & 0x3fU);
  }
  const auto size = static_cast<int64_t>(piece.size());
  const Buffer first = Buffer::of(std::span<const uint8_t>(piece));
  Buffer made((bytes + size - 1) / size * size);
  for (int64_t at = 0; at < made.num_bytes(); at += size) {
    cuda::RowCopy copy;
    copy.to = made.as<uint8_t>() + at;
    copy.from = first.as<const uint8_t>();
    copy.rows = 1;
    copy.bytes = copy.to_stride = copy.from_stride = size;
    cuda::copy_rows(copy);
  }
  cuda::check_cuda(cudaStreamSynchronize(cuda::stream()), "cudaStreamSynchronize");
  return made;
}

// Seconds of one of `count` runs in a graph.
double seconds_on_gpu(int count, const std::function<void(int)>& run) {
  const cuda::Graph graph([&] {
    for (int i = 0; i < count; ++i) run(i);
  });
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda::check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  cuda::check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i <= kRuns; ++i) {
    cuda::check_cuda(cudaEventRecord(begin, cuda::stream()), "cudaEventRecord");
    graph.launch();
    cuda::check_cuda(cudaEventRecord(end, cuda::stream()), "cudaEventRecord");
    cuda::check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i > 0) seconds.push_back(milliseconds / 1e3 / count);
  }
  cuda::check_cuda(cudaEventDestroy(begin), "cudaEventDestroy");
  cuda::check_cuda(cudaEventDestroy(end), "cudaEventDestroy");
  return median(seconds);
}

double seconds_on_host(const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    seconds.push_back(taken.count());
  }
  return median(seconds);
}

struct Shape {
  int64_t out, in, count;
};

// Room for weights, from which each run takes others, and for rows.
struct Memory {
  Buffer weights = filled(int64_t{640} << 20);
  Buffer x = filled(512 * kFfn * kFloat);
  Buffer y = Buffer(2 * 512 * kVocab * kFloat);
};

// One of the matrices of a shape; numbers of weights are read from any place.
class Products {
 public:
  Products(const Memory& memory, const Shape& shape, bool is_quantized)
      : memory_(memory), shape_(shape), is_quantized_(is_quantized) {}

  int64_t bytes() const { return data_bytes() + 2 * scale_bytes(); }
  // Of run i, at a place of its own.
  std::vector<cuda::Product> of_run(int64_t i, int64_t rows) const {
    constexpr int64_t kAlign = 256;
    const int64_t step = (bytes() + kAlign - 1) / kAlign * kAlign;
    const int64_t places = memory_.weights.num_bytes() / step;
    std::vector<cuda::Product> products;
    for (int64_t k = 0; k < shape_.count; ++k) {
      const auto* from =
          memory_.weights.as<const uint8_t>() + (i * shape_.count + k) % places * step;
      products.push_back({view(from), memory_.y.as<float>() + k * rows * shape_.out});
    }
    return products;
  }

 private:
  int64_t data_bytes() const { return shape_.out * shape_.in * (is_quantized_ ? 1 : 4) / 2; }
  int64_t scale_bytes() const { return is_quantized_ ? shape_.out * shape_.in / 32 * 2 : 0; }
  cuda::MatrixView view(const uint8_t* from) const {
    cuda::MatrixView w;
    w.data = from;
    w.out = static_cast<int32_t>(shape_.out);
    w.in = static_cast<int32_t>(shape_.in);
    w.numbers = cuda::Dtype::kBF16;
    if (!is_quantized_) return w;
    w.bits = 4;
    w.units_per_group = 4;
    w.scale_numbers = cuda::Dtype::kF16;
    w.scales = from + data_bytes();
    w.offsets = from + data_bytes() + scale_bytes();
    return w;
  }

  const Memory& memory_;
  const Shape& shape_;
  bool is_quantized_;
};

void time_multiply(const Memory& memory, const Shape& shape, bool is_quantized) {
  std::printf("%lld x %5lldx%-5lld %s |", static_cast<long long>(shape.count),
              static_cast<long long>(shape.out), static_cast<long long>(shape.in),
              is_quantized ? "q4  " : "bf16");
  const Products products(memory, shape, is_quantized);
  for (const int64_t rows : {1, 4, 8, 16, 512}) {
    const auto* x = memory.x.as<const float>();
    const int count = rows > 16 ? 2 : 20;
    const double own =
        seconds_on_gpu(count, [&](int i) { cuda::multiply(products.of_run(i, rows), x, rows); });
    if (rows > 16) {
      const double flops = 2.0 * static_cast<double>(rows * shape.count * shape.out * shape.in);
      std::printf(" %lld: %.0f us %.1f TFLOP/s\n", static_cast<long long>(rows), own * 1e6,
                  flops / own / 1e12);
      continue;
    }
    const double plain = seconds_on_gpu(count, [&](int i) {
      for (const auto& each : products.of_run(i, rows)) bench::plain_multiply(each, x, rows);
    });
    const auto bytes = static_cast<double>(shape.count * products.bytes());
    std::printf(" %lld: %.1f us %.0f GB/s (plain %.1f)", static_cast<long long>(rows), own * 1e6,
                bytes / own / 1e9, plain * 1e6);
  }
}

void time_attend(int64_t rows, int64_t positions) {
  Buffer q = filled(rows * kHeads * kHeadDim * kFloat), out(q.num_bytes());
  const Buffer k = filled(rows * kKvHeads * kHeadDim * kFloat), angles = filled(kHeadDim * kFloat);
  const Buffer cache = filled(rows * kKvHeads * positions * kHeadDim * kFloat);
  const Buffer values = filled(cache.num_bytes());
  const std::vector<int32_t> start = {static_cast<int32_t>(positions - 1)};
  std::vector<int32_t> kv_of_head;
  for (int32_t head = 0; head < kHeads; ++head) kv_of_head.push_back(head / 4);
  const Buffer starts = Buffer::of(std::span<const int32_t>(start));
  const Buffer heads = Buffer::of(std::span<const int32_t>(kv_of_head));
  cuda::AttentionCall call;
  call.q = q.as<float>();
  call.k = call.v = k.as<const float>();
  call.cos = call.sin = angles.as<const float>();
  call.keys = cache.as<float>();
  call.values = values.as<float>();
  call.start = starts.as<const int32_t>();
  call.kv_of_head = heads.as<const int32_t>();
  call.out = out.as<float>();
  call.rows = static_cast<int32_t>(rows);
  call.tokens = 1;
  call.heads = kHeads;
  call.kv_heads = kKvHeads;
  call.head_dim = call.turned_dim = kHeadDim;
  call.capacity = static_cast<int32_t>(positions);
  const double own = seconds_on_gpu(20, [&](int) { cuda::attend(call); });
  std::printf(" %lld rows at %lld: %.1f us", static_cast<long long>(rows),
              static_cast<long long>(positions), own * 1e6);
}

void time_rows(const Memory& memory, int64_t rows) {
  cuda::NormCall norm;
  norm.x = memory.y.as<float>();
  norm.added = norm.weight = memory.x.as<const float>();
  norm.normed = memory.y.as<float>() + rows * kWidth;
  norm.rows = static_cast<int32_t>(rows);
  norm.width = kWidth;
  cuda::GateCall swiglu;
  swiglu.gate = memory.y.as<float>();
  swiglu.up = memory.x.as<const float>();
  swiglu.rows = static_cast<int32_t>(rows);
  swiglu.width = kFfn;
  const double norms = seconds_on_gpu(20, [&](int) { cuda::add_and_norm(norm); });
  const double gates = seconds_on_gpu(20, [&](int) { cuda::apply_gate(swiglu); });
  std::printf(" %lld rows: norm %.1f us, swiglu %.1f us", static_cast<long long>(rows), norms * 1e6,
              gates * 1e6);
}

// What the processor waits for.
void time_host(Memory& memory) {
  std::vector<float> numbers(static_cast<size_t>(kVocab));
  const double up = seconds_on_host([&] { memory.y.upload(numbers.data(), kWidth * kFloat); });
  const double down = seconds_on_host([&] { memory.y.download(numbers.data(), kVocab * kFloat); });
  cuda::GateCall call;
  call.gate = memory.y.as<float>();
  call.up = memory.x.as<const float>();
  call.rows = 1;
  call.width = 256;
  constexpr int kKernels = 9 * 32;
  const cuda::Graph graph([&] {
    for (int i = 0; i < kKernels; ++i) cuda::apply_gate(call);
  });
  const auto wait = [] {
    cuda::check_cuda(cudaStreamSynchronize(cuda::stream()), "cudaStreamSynchronize");
  };
  double launches = 0;
  const double whole = seconds_on_host([&] {
    const auto begin = std::chrono::steady_clock::now();
    graph.launch();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    launches = taken.count();
    wait();
  });
  const double alone = seconds_on_host([&] {
    for (int i = 0; i < kKernels; ++i) cuda::apply_gate(call);
    wait();
  });
  std::printf(
      "processor: upload of a row %.1f us, download of %lld logits %.1f us, graph of %d small "
      "kernels %.1f us (launch %.1f), one by one %.1f us\n",
      up * 1e6, static_cast<long long>(kVocab), down * 1e6, kKernels, whole * 1e6, launches * 1e6,
      alone * 1e6);
}

void run() {
  cuda::select_device("bench_cuda", 0);
  Memory memory;
  time_host(memory);
  const Shape shapes[] = {
      {kWidth, kWidth, 1}, {kFfn, kWidth, 2}, {kWidth, kFfn, 1}, {kVocab, kWidth, 1}};
  for (const bool is_quantized : {true, false}) {
    for (const Shape& shape : shapes) time_multiply(memory, shape, is_quantized);
  }
  std::printf("attend:");
  for (const int64_t rows : {1, 16}) {
    for (const int64_t positions : {128, 2048}) time_attend(rows, positions);
  }
  std::printf("\n");
  for (const int64_t rows : {1, 16}) time_rows(memory, rows);
  std::printf("\n");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
