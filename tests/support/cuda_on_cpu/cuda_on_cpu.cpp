#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/cuda_on_cpu/cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim;

struct FiberGraph {
  std::vector<std::function<void()>> kernels;
};

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kWarp = 32;

/// What a lane gives to the others at a time.
struct Slot {
  uint64_t shuffled = ~uint64_t{0};
  // Of a 16 x 16 and of a 16 x 8 matrix: the values of its words.
  float a[8] = {}, b[4] = {};
};

/// A point that `size` threads have to reach before one goes on.
struct Barrier {
  size_t size = 0, waiting = 0;
  uint64_t phase = 0;
};

/// The threads of the block that runs.
class Fibers {
 public:
  /// False if some threads wait for others that never come.
  bool run_block(unsigned threads, const std::function<void()>& body, bool backwards);
  void wait(Barrier& barrier);
  Barrier& block() { return block_; }
  Barrier& warp() { return warps_[threadIdx.x / kWarp]; }
  /// What the lanes of the warp give in its present phase, until the next but one begins.
  Slot* slots() { return &slots_[(threadIdx.x / kWarp * 2 + warp().phase % 2) * kWarp]; }

 private:
  struct Fiber {
    ucontext_t first = {};
    jmp_buf next = {};
    std::vector<char> stack = std::vector<char>(kStackBytes);
    bool has_begun = false;
    bool is_done = true;
  };
  static void enter();
  void leave();
  void prepare(unsigned threads);
  void resume(size_t index);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Barrier> warps_;
  std::vector<Slot> slots_;
  Barrier block_;
  jmp_buf main_ = {};
  const std::function<void()>* body_ = nullptr;
  uint64_t progress_ = 0;
};

Fibers& fibers() {
  static Fibers only;
  return only;
}

void Fibers::enter() {
  Fibers& all = fibers();
  const size_t own = threadIdx.x;
  // A thread of one block after the other.
  while (true) {
    (*all.body_)();
    all.fibers_[own]->is_done = true;
    ++all.progress_;
    all.leave();
  }
}

// Goes on in resume(), and here when this thread is resumed. Jumps, as swapcontext asks the system
// for signal masks each time.
void Fibers::leave() {
  if (_setjmp(fibers_[threadIdx.x]->next) == 0) _longjmp(main_, 1);
}

void Fibers::prepare(unsigned threads) {
  while (fibers_.size() < threads) {
    Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
    ::getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack.data();
    fiber.first.uc_stack.ss_size = fiber.stack.size();
    ::makecontext(&fiber.first, &Fibers::enter, 0);
  }
  block_ = {threads, 0, 0};
  warps_.assign((threads + kWarp - 1) / kWarp, Barrier{kWarp, 0, 0});
  slots_.assign(warps_.size() * 2 * kWarp, Slot{});
  for (unsigned i = 0; i < threads; ++i) fibers_[i]->is_done = false;
}

void Fibers::resume(size_t index) {
  Fiber& fiber = *fibers_[index];
  if (fiber.is_done) return;
  threadIdx = dim3(static_cast<unsigned>(index));
  if (_setjmp(main_) != 0) return;
  if (fiber.has_begun) _longjmp(fiber.next, 1);
  fiber.has_begun = true;
  ::setcontext(&fiber.first);
}

bool Fibers::run_block(unsigned threads, const std::function<void()>& body, bool backwards) {
  prepare(threads);
  body_ = &body;
  size_t done = 0;
  while (done < threads) {
    const uint64_t before = progress_;
    for (size_t i = 0; i < threads; ++i) resume(backwards ? threads - 1 - i : i);
    if (progress_ == before) return false;
    done = 0;
    for (size_t i = 0; i < threads; ++i) done += fibers_[i]->is_done ? 1 : 0;
  }
  return true;
}

void Fibers::wait(Barrier& barrier) {
  const uint64_t phase = barrier.phase;
  ++progress_;
  if (++barrier.waiting == barrier.size) {
    barrier.waiting = 0;
    ++barrier.phase;
    return;
  }
  while (barrier.phase == phase) leave();
}

FiberGraph* recording = nullptr;
int64_t kernels_run = 0;
cudaError_t last_error = cudaSuccess;

// Where an allocation's pages begin, and how many bytes they are.
struct Pages {
  void* begin;
  size_t bytes;
};
std::map<void*, Pages>& allocations() {
  static std::map<void*, Pages> all;
  return all;
}

// Of the kernel that runs.
void* shared_memory = nullptr;
size_t shared_size = 0;

void run_blocks(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      blockIdx = dim3(x, y);
      if (shared_size > 0) std::memset(shared_memory, 0xff, shared_size);
      if (!fibers().run_block(threads.x, thread, kernels_run % 2 == 1)) {
        last_error = cudaErrorLaunchFailure;
        return;
      }
    }
  }
}

void run_now(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& thread) {
  ++kernels_run;
  blockDim = threads;
  shared_size = shared_bytes;
  if (shared_size > 0) last_error = cudaMalloc(&shared_memory, shared_size);
  if (last_error == cudaSuccess) run_blocks(blocks, threads, thread);
  if (shared_size > 0) cudaFree(shared_memory);
}

cudaError_t run_or_record(const std::function<void()>& run) {
  if (recording != nullptr) {
    recording->kernels.push_back(run);
  } else {
    run();
  }
  return last_error;
}

}  // namespace

namespace weft::test {

cudaError_t run_on_fibers(dim3 blocks, dim3 threads, size_t shared_bytes,
                          std::function<void()> thread) {
  // What a block of compute capability 8.0 may have.
  constexpr size_t kMostShared = 163 << 10;
  if (blocks.x == 0 || blocks.y == 0 || blocks.y > 65535 || threads.x == 0 || threads.x > 1024 ||
      shared_bytes > kMostShared) {
    return cudaErrorInvalidValue;
  }
  return run_or_record([=] { run_now(blocks, threads, shared_bytes, thread); });
}

void* launched_memory(size_t bytes) {
  if (bytes != shared_size) std::abort();
  return shared_memory;
}

void multiply_fragments(const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                        float (&d)[4]) {
  const size_t lane = threadIdx.x % kWarp;
  Slot* const slots = fibers().slots();
  const auto put = [](uint32_t pair, float* to) {
    const uint32_t both[2] = {pair << 16, pair & 0xffff0000U};
    std::memcpy(to, both, sizeof both);
  };
  for (size_t i = 0; i < 4; ++i) put(a[i], slots[lane].a + 2 * i);
  for (size_t i = 0; i < 2; ++i) put(b[i], slots[lane].b + 2 * i);
  fibers().wait(fibers().warp());
  for (size_t i = 0; i < 4; ++i) {
    const Slot* of_row = slots + lane / 4 * 4;
    const Slot* of_column = slots + (lane % 4 * 2 + i % 2) * 4;
    float sum = 0;
    for (size_t k = 0; k < 4; ++k, ++of_row, ++of_column) {
      const float *own = of_row->a + i / 2 * 2, *other = of_column->b;
      sum += own[0] * other[0] + own[1] * other[1] + own[4] * other[2] + own[5] * other[3];
    }
    d[i] = c[i] + sum;
  }
}

}  // namespace weft::test

cudaError_t cudaLaunchHostFunc(cudaStream_t /*stream*/, void (*function)(void*), void* data) {
  return run_or_record([=] { function(data); });
}

void __syncthreads() { fibers().wait(fibers().block()); }
void __syncwarp() { fibers().wait(fibers().warp()); }

uint64_t __shfl_xor_sync(unsigned lanes, uint64_t value, int step) {
  if (lanes != 0xffffffffU) return ~uint64_t{0};
  const size_t lane = threadIdx.x % kWarp;
  Slot* const slots = fibers().slots();
  slots[lane].shuffled = value;
  fibers().wait(fibers().warp());
  return slots[lane ^ static_cast<size_t>(step)].shuffled;
}
// All bits set are NaN.
float __shfl_xor_sync(unsigned lanes, float value, int step) {
  const uint64_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(static_cast<uint32_t>(__shfl_xor_sync(lanes, bits, step)));
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  const pid_t own = ::getenv("CUDA_ON_CPU_SHARED") == nullptr ? ::getpid() : 0;
  std::memcpy(properties->uuid.bytes, &own, sizeof own);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute /*attribute*/, int value) {
  return kernel != nullptr && value >= 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGetLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid on the processor";
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  // As aligned as kernels may expect it of the begin.
  constexpr size_t kAlign = 32;
  if (recording != nullptr) return cudaErrorInvalidValue;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t room = (bytes + kAlign - 1) / kAlign * kAlign;
  const size_t whole = (room + page - 1) / page * page;
  void* begin = ::mmap(nullptr, whole + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return cudaErrorMemoryAllocation;
  ::mprotect(static_cast<char*>(begin) + whole, page, PROT_NONE);
  *memory = static_cast<char*>(begin) + whole - room;
  std::memset(*memory, 0xff, room);
  allocations()[*memory] = {begin, whole + page};
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const auto found = allocations().find(memory);
  if (found == allocations().end() || recording != nullptr) return cudaErrorInvalidValue;
  ::munmap(found->second.begin, found->second.bytes);
  allocations().erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  if (recording != nullptr) return cudaErrorInvalidValue;
  std::memcpy(to, from, bytes);
  return last_error;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind /*kind*/,
                              cudaStream_t /*stream*/) {
  if (recording != nullptr || width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  for (size_t row = 0; row < height; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, width);
  }
  return last_error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return recording == nullptr ? last_error : cudaErrorInvalidValue;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t /*stream*/, cudaStreamCaptureMode /*mode*/) {
  if (recording != nullptr) return cudaErrorInvalidValue;
  recording = std::make_unique<FiberGraph>().release();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
  *graph = recording;
  recording = nullptr;
  return *graph == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned /*flags*/) {
  *executable = std::make_unique<FiberGraph>(*graph).release();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t /*stream*/) {
  for (const auto& kernel : executable->kernels) kernel();
  return last_error;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  std::unique_ptr<FiberGraph> end(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::unique_ptr<FiberGraph> end(graph);
  return cudaSuccess;
}
