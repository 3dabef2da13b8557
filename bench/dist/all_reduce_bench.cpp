// All-reduce between the ranks of this host: the backend (shm, or what --backend names), Gloo and,
// as a floor, a bare loop over shared memory, in turns within one run. `bench_all_reduce [--json]
// [--quick] [--backend NAME] [-n RANKS]...` starts its own ranks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/file.h"
#include "weft/dist/launch.h"
#include "weft/dist/world.h"

namespace {

using weft::dist::Group;
using weft::dist::World;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The least that two or more processes must do: show, wait for a flag, add. No checks, no way to
// notice a dead peer, one reader per writer's buffer.
class BareLoop {
 public:
  BareLoop(std::byte* memory, int rank, int ranks, size_t bytes)
      : memory_(memory), rank_(rank), ranks_(ranks), bytes_(bytes) {}

  static size_t size_for(int ranks, size_t bytes) {
    return static_cast<size_t>(ranks) * (kLine + 2 * bytes);
  }

  void add(float* x, int64_t count) {
    ++step_;
    std::memcpy(buffer(rank_), x, static_cast<size_t>(count) * sizeof(float));
    flag(rank_).store(step_, std::memory_order_release);
    for (int r = 0; r < ranks_; ++r) {
      while (flag(r).load(std::memory_order_acquire) < step_) __builtin_ia32_pause();
    }
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      const float* other = buffer(r);
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) x[i] += other[i];
    }
  }

 private:
  static constexpr size_t kLine = 128;

  std::atomic<uint64_t>& flag(int rank) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_ + static_cast<size_t>(rank) * kLine);
  }
  float* buffer(int rank) const {
    const size_t index = 2 * static_cast<size_t>(rank) + step_ % 2;
    return reinterpret_cast<float*>(memory_ + static_cast<size_t>(ranks_) * kLine + index * bytes_);
  }

  std::byte* memory_;
  int rank_;
  int ranks_;
  size_t bytes_;
  uint64_t step_ = 0;
};

// Memory that all ranks see: rank 0's anonymous file, opened by the others through /proc.
std::byte* share_memory(const Group& group, size_t bytes) {
  at::Tensor place = at::zeros({2}, at::kLong);
  weft::core::FileDescriptor fd;
  if (group.rank() == 0) {
    fd = weft::core::FileDescriptor(memfd_create("bench", 0));
    weft::core::check<weft::core::IoError>(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0,
                                           "bench: cannot size the memory");
    place[0] = getpid();
    place[1] = fd.get();
  }
  group.broadcast(place, 0);
  const std::string path =
      weft::core::join("/proc/", place[0].item<int64_t>(), "/fd/", place[1].item<int64_t>());
  std::FILE* file = std::fopen(path.c_str(), "r+");
  weft::core::check<weft::core::IoError>(file != nullptr, "bench: cannot open ", path);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  std::fclose(file);
  weft::core::check<weft::core::IoError>(memory != MAP_FAILED, "bench: cannot map ", path);
  group.barrier();
  return static_cast<std::byte*>(memory);
}

// Median microseconds of calls made one after the other, as a model makes them; the first few are
// not counted.
template <class Function>
double measure(const Group& group, int calls, Function&& function) {
  std::vector<double> times;
  group.barrier();
  for (int i = 0; i < calls + calls / 10; ++i) {
    const auto start = Clock::now();
    function();
    if (i >= calls / 10) times.push_back(seconds_since(start) * 1e6);
  }
  return median(times);
}

// Each rank on a processor of its own, if there are enough: on a busy machine the scheduler may
// leave all on one for seconds.
void pin(int rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != rank) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof(own), &own);
  }
}

struct Options {
  bool json = false;
  /// Only small tensors: shows that it runs.
  bool quick = false;
};

void run_rank(const Options& options) {
  const bool json = options.json;
  at::set_num_threads(1);
  const World world = World::from_env();
  const Group& own = world.group();
  const char* name = world.backend().c_str();
  const size_t most = options.quick ? 64 << 10 : 64 << 20;
  std::byte* memory = share_memory(own, BareLoop::size_for(world.size(), most));
  BareLoop bare(memory, world.rank(), world.size(), most);
  const Group gloo = world.make_group_on("gloo", "gloo");
  pin(world.rank(), world.size());
  auto rows = nlohmann::json::array();
  if (world.rank() == 0 && !json) {
    std::printf("all-reduce, float32 sum, %d ranks: median microseconds per call\n", world.size());
    std::printf("%10s %12s %12s %12s\n", "bytes", name, "gloo", "bare loop");
  }
  for (size_t bytes = 4096; bytes <= most; bytes *= 4) {
    at::Tensor x = at::zeros({static_cast<int64_t>(bytes / sizeof(float))});
    const int calls = static_cast<int>(std::clamp<size_t>((256 << 20) / bytes, 11, 3000));
    auto* data = x.mutable_data_ptr<float>();
    const double own_us = measure(own, calls, [&] { own.all_reduce(x); });
    const double gloo_us = measure(own, std::min(calls, 101), [&] { gloo.all_reduce(x); });
    const double bare_us = measure(own, calls, [&] { bare.add(data, x.numel()); });
    rows.push_back({{"bytes", bytes},
                    {world.backend() + "_us", own_us},
                    {"gloo_us", gloo_us},
                    {"bare_us", bare_us}});
    if (world.rank() == 0 && !json) {
      std::printf("%10zu %12.2f %12.1f %12.2f\n", bytes, own_us, gloo_us, bare_us);
      std::fflush(stdout);
    }
  }
  if (world.rank() == 0 && json) {
    std::printf("%s\n", nlohmann::json{{"ranks", world.size()}, {"rows", rows}}.dump().c_str());
  }
}

int start_ranks(const std::vector<int>& sizes, const std::string& backend,
                const std::vector<std::string>& flags) {
  for (const int n : sizes) {
    weft::dist::LaunchOptions options;
    options.num_ranks = n;
    options.backend = backend;
    options.prefix_output = false;
    options.command = {"/proc/self/exe"};
    options.command.insert(options.command.end(), flags.begin(), flags.end());
    const int status = weft::dist::launch(options);
    if (status != 0) return status;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> flags;
  std::vector<int> sizes;
  std::string backend = "shm";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" || argument == "--quick") {
      (argument == "--json" ? options.json : options.quick) = true;
      flags.push_back(argument);
    } else if (argument == "--backend" && i + 1 < argc) {
      backend = argv[++i];
    } else if (argument == "-n" && i + 1 < argc) {
      sizes.push_back(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: bench_all_reduce [--json] [--quick] [--backend NAME] [-n RANKS]...\n");
      return 2;
    }
  }
  try {
    if (std::getenv("WEFT_RANK") == nullptr) {
      return start_ranks(sizes.empty() ? std::vector<int>{2, 4} : sizes, backend, flags);
    }
    run_rank(options);
  } catch (const weft::core::Error& error) {
    std::fprintf(stderr, "bench_all_reduce: %s: %s\n", error.type(), error.what());
    return error.exit_code();
  }
  return 0;
}
