#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/attention_bench.h"
#include "bench/cuda/product_bench.h"
#include "bench/cuda/timing.h"
#include "weft/core/error.h"
#include "weft/cuda/buffer.h"
#include "weft/cuda/device.h"
#include "weft/cuda/graph.h"
#include "weft/cuda/kernels/rows.h"
#include "weft/cuda/runtime.h"

/// Times the kernels on the shapes of an 8B Llama, and what passes between the processor and the
/// GPU for each token. Kernels run many to a graph, so that the processor makes no difference.
/// Medians. Arguments choose parts: host, products, attention, rows; none: all.
namespace {

using namespace weft;
using bench::kFloat;
using cuda::Buffer;

constexpr int64_t kWidth = 4096, kFfn = 14336, kVocab = 32000;

double seconds_on_host(const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    seconds.push_back(taken.count());
  }
  return bench::median(seconds);
}

// Rows for the kernels below.
struct Memory {
  Buffer x = bench::any_numbers(16 * kFfn * kFloat);
  Buffer y = Buffer(16 * kFfn * kFloat);
};

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
  const double norms = bench::seconds_on_gpu(20, [&](int) { cuda::add_and_norm(norm); });
  const double gates = bench::seconds_on_gpu(20, [&](int) { cuda::apply_gate(swiglu); });
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

// Whether a part is to be run.
bool has(const std::vector<std::string>& parts, const char* name) {
  return parts.empty() || std::find(parts.begin(), parts.end(), name) != parts.end();
}

void run(const std::vector<std::string>& parts) {
  cuda::select_device("bench_cuda", 0);
  Memory memory;
  if (has(parts, "host")) time_host(memory);
  if (has(parts, "attention")) bench::time_attention();
  if (has(parts, "products")) bench::time_products();
  if (!has(parts, "rows")) return;
  for (const int64_t rows : {1, 16}) time_rows(memory, rows);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
