// A library that weft/cuda loads in NCCL's place where kernels run on the processor: ranks are
// processes of one host and sum through memory that they share, in the stream's order, so that sums
// are recorded with the kernels around them.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/cuda_on_cpu/nccl.h"

namespace {

constexpr int kMostRanks = 8;
constexpr size_t kPart = 4096;

// What the ranks share; begins as zeros.
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<int> phase;
  float parts[kMostRanks][kPart];

  void wait_for(int size) {
    const int now = phase.load();
    if (arrived.fetch_add(1) + 1 == size) {
      arrived.store(0);
      phase.store(now + 1);
      return;
    }
    while (phase.load() == now) ::sched_yield();
  }
};

}  // namespace

struct RanksOnCpu {
  // One sum of a stream or of a recording.
  struct Sum {
    RanksOnCpu* ranks;
    const float* from;
    float* to;
    size_t count;
  };

  int size = 0, rank = 0;
  Meeting* meeting = nullptr;
  std::vector<std::unique_ptr<Sum>> sums;
};

namespace {

void run(void* untyped) {
  const auto& sum = *static_cast<RanksOnCpu::Sum*>(untyped);
  const RanksOnCpu& ranks = *sum.ranks;
  Meeting& meeting = *ranks.meeting;
  for (size_t start = 0; start < sum.count; start += kPart) {
    const size_t count = std::min(kPart, sum.count - start);
    std::copy_n(sum.from + start, count, meeting.parts[ranks.rank]);
    meeting.wait_for(ranks.size);
    for (size_t i = 0; i < count; ++i) {
      float total = 0;
      for (int rank = 0; rank < ranks.size; ++rank) total += meeting.parts[rank][i];
      sum.to[start + i] = total;
    }
    meeting.wait_for(ranks.size);
  }
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/nccl_on_cpu_%d_%d", ::getpid(), made++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank) {
  if (size > kMostRanks) return ncclInvalidArgument;
  const int file = ::shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Meeting)) != 0) return ncclSystemError;
  void* const shared =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (shared == MAP_FAILED) return ncclSystemError;
  auto ranks = std::make_unique<RanksOnCpu>();
  ranks->size = size;
  ranks->rank = rank;
  ranks->meeting = static_cast<Meeting*>(shared);
  ranks->meeting->wait_for(size);
  if (rank == 0) ::shm_unlink(id.internal);
  *communicator = ranks.release();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  if (type != ncclFloat32 || op != ncclSum) return ncclInvalidArgument;
  auto& sum = communicator->sums.emplace_back(std::make_unique<RanksOnCpu::Sum>());
  *sum = {communicator, static_cast<const float*>(from), static_cast<float*>(to), count};
  return cudaLaunchHostFunc(stream, run, sum.get()) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const std::unique_ptr<RanksOnCpu> end(communicator);
  ::munmap(end->meeting, sizeof(Meeting));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidArgument ? "invalid argument" : "system error";
}
