#include "bench/cuda/timing.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <span>

#include "weft/cuda/graph.h"
#include "weft/cuda/runtime.h"

namespace weft::bench {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kPiece = 1 << 22;

cuda::Buffer repeat(std::span<const uint8_t> piece, int64_t bytes) {
  const auto size = static_cast<int64_t>(piece.size());
  const cuda::Buffer first = cuda::Buffer::of(piece);
  cuda::Buffer made((bytes + size - 1) / size * size);
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

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

uint32_t next_random(uint32_t& state) {
  state = state * 1664525 + 1013904223;
  const uint32_t mixed = (state ^ state >> 15) * 0x2c1b3c6dU;
  return mixed ^ mixed >> 16;
}

Repeated random_floats(int64_t count) {
  Repeated made;
  uint32_t state = static_cast<uint32_t>(count);
  made.piece.resize(static_cast<size_t>(std::min(count, kPiece / kFloat)));
  for (float& each : made.piece) {
    each = static_cast<float>(static_cast<int32_t>(next_random(state))) * 0x1p-31F;
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(made.piece.data());
  made.buffer = repeat({bytes, made.piece.size() * sizeof(float)}, count * kFloat);
  return made;
}

cuda::Buffer any_numbers(int64_t bytes) {
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(bytes, kPiece)));
  uint32_t state = 1;
  for (uint8_t& byte : piece) byte = static_cast<uint8_t>(next_random(state) & 0x3fU);
  return repeat(piece, bytes);
}

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

}  // namespace weft::bench
