// Collectives between the ranks of this host: shm through a Group and (all-reduce) without, mpi
// where it was built, Gloo and, as a floor, a bare loop over shared memory, in turns within one
// run. `bench_all_reduce [--json] [--quick] [--backend NAME] [-n RANKS]...` starts its own ranks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/dist/bare_loop.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/backends/backends.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/shm_names.h"
#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/shm/collectives.h"
#include "weft/dist/world.h"

namespace {

using weft::bench::BareLoop;
using weft::dist::Group;
using weft::dist::ShmSegment;
using weft::dist::World;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

// shm's collectives without the group around them.
class DirectShm {
 public:
  explicit DirectShm(const World& world)
      : segment_(open_segment(world)), collectives_(segment_, world.rank(), make_monitor(world)) {}

  void all_reduce(at::Tensor& x) {
    collectives_.all_reduce(static_cast<std::byte*>(x.data_ptr()), x.numel(), at::kFloat,
                            weft::dist::ReduceOp::kSum);
  }

 private:
  static ShmSegment open_segment(const World& world) {
    const weft::dist::ShmLayout layout(world.size());
    const std::string name = weft::dist::shm_name(world.info().job_id, "bench");
    std::optional<ShmSegment> segment;
    if (world.rank() == 0) segment.emplace(ShmSegment::create(name, layout));
    world.group().barrier();
    if (world.rank() != 0) segment.emplace(ShmSegment::open(name, layout));
    world.group().barrier();
    if (world.rank() == 0) weft::dist::unlink_shm(name);
    return std::move(*segment);
  }

  static std::shared_ptr<weft::dist::GroupMonitor> make_monitor(const World& world) {
    const at::Tensor pids = world.group().all_gather(at::full({1}, getpid(), at::kLong), 0);
    std::vector<weft::dist::Peer> peers;
    std::vector<int> ranks;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto pid = static_cast<pid_t>(pids[rank].item<int64_t>());
      peers.push_back({rank, pid, weft::dist::process_start_time(pid), weft::dist::host_name()});
      ranks.push_back(rank);
    }
    auto all = std::make_shared<weft::dist::Peers>(std::move(peers), world.rank(), nullptr);
    return std::make_shared<weft::dist::GroupMonitor>("direct", std::move(all), std::move(ranks),
                                                      std::chrono::minutes(10));
  }

  ShmSegment segment_;
  weft::dist::ShmCollectives collectives_;
};

// One way to do an operation.
struct Way {
  std::string name;
  std::function<void()> call;
  /// Of its calls, how many are made in a round.
  int calls = 0;
};

// Median microseconds of each way's calls, made one after the other as a model makes them. The ways
// take turns; the first calls of a turn are not counted.
std::vector<double> measure(const Group& group, const std::vector<Way>& ways) {
  constexpr int kRounds = 5;
  std::vector<std::vector<double>> times(ways.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t w = 0; w < ways.size(); ++w) {
      group.barrier();
      const int unmeasured = 1 + ways[w].calls / 10;
      for (int i = 0; i < ways[w].calls + unmeasured; ++i) {
        const auto start = Clock::now();
        ways[w].call();
        if (i >= unmeasured) times[w].push_back(seconds_since(start) * 1e6);
      }
    }
  }
  std::vector<double> medians;
  for (auto& each : times) medians.push_back(median(std::move(each)));
  return medians;
}

// The ways to do one operation on tensors of one size.
class Operations {
 public:
  Operations(const World& world, bool quick)
      : world_(world),
        most_(quick ? 64 << 10 : 64 << 20),
        bare_(share_memory(world.group(), BareLoop::size_for(world.size(), most_)), world.rank(),
              world.size(), most_, world.size() > weft::dist::available_cpus()),
        direct_(world) {
    groups_.push_back({"shm", world.make_group_on("shm", "shm")});
    if (world.backend() != "shm") groups_.push_back({world.backend(), world.group()});
    if (world.backend() != "gloo") groups_.push_back({"gloo", world.make_group_on("gloo", "gloo")});
  }

  size_t most() const { return most_; }

  std::vector<Way> ways(const std::string& operation, size_t bytes) {
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    const int64_t part = count / world_.size();
    const at::Tensor whole = at::zeros({count});
    const at::Tensor piece = at::zeros({part});
    const int calls = static_cast<int>(std::clamp<size_t>((64 << 20) / bytes, 3, 1000));
    std::vector<Way> all;
    for (const auto& [name, group] : groups_) {
      const int most_calls = name == "shm" ? calls : std::min(calls, name == "gloo" ? 20 : 200);
      all.push_back({name, call_of(operation, group, whole, piece), most_calls});
    }
    if (operation == "all_reduce") {
      all.push_back({"direct", [this, x = whole]() mutable { direct_.all_reduce(x); }, calls});
    }
    all.push_back({"bare", bare_call(operation, whole, piece, part), calls});
    return all;
  }

 private:
  static std::function<void()> call_of(const std::string& operation, const Group& group,
                                       at::Tensor whole, at::Tensor piece) {
    if (operation == "all_reduce") return [=]() mutable { group.all_reduce(whole); };
    if (operation == "all_gather") return [=]() mutable { group.all_gather_into(whole, piece); };
    return [=]() mutable { group.reduce_scatter_into(piece, whole); };
  }

  std::function<void()> bare_call(const std::string& operation, const at::Tensor& whole,
                                  const at::Tensor& piece, int64_t part) {
    if (operation == "all_reduce") {
      return [=, this] { bare_.all_reduce(whole.mutable_data_ptr<float>(), whole.numel()); };
    }
    if (operation == "all_gather") {
      return [=, this] {
        bare_.all_gather(whole.mutable_data_ptr<float>(), piece.mutable_data_ptr<float>(), part);
      };
    }
    return [=, this] {
      bare_.reduce_scatter(piece.mutable_data_ptr<float>(), whole.mutable_data_ptr<float>(), part);
    };
  }

  const World& world_;
  size_t most_;
  BareLoop bare_;
  DirectShm direct_;
  std::vector<std::pair<std::string, Group>> groups_;
};

void run_rank(const Options& options) {
  at::set_num_threads(1);
  const World world = World::from_env();
  Operations operations(world, options.quick);
  pin(world.rank(), world.size());
  const bool prints = world.rank() == 0 && !options.json;
  auto rows = nlohmann::json::array();
  if (prints) {
    std::printf("float32, %d ranks: median microseconds per call of the whole's bytes\n",
                world.size());
  }
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter"}) {
    for (const size_t bytes : {2304UL, 4UL << 10, 64UL << 10, 4UL << 20, 64UL << 20}) {
      if (bytes > operations.most()) continue;
      const auto ways = operations.ways(operation, bytes);
      const auto medians = measure(world.group(), ways);
      nlohmann::json row = {{"operation", operation}, {"bytes", bytes}};
      if (prints) std::printf("%15s %9zu", operation, bytes);
      for (size_t w = 0; w < ways.size(); ++w) {
        row[ways[w].name + "_us"] = medians[w];
        if (prints) std::printf("  %s %.2f", ways[w].name.c_str(), medians[w]);
      }
      if (prints) std::printf("\n");
      std::fflush(stdout);
      rows.push_back(row);
    }
  }
  if (world.rank() == 0 && options.json) {
    std::printf("%s\n", nlohmann::json{{"ranks", world.size()}, {"rows", rows}}.dump().c_str());
  }
}

// Ranks that mpirun knows, too, can use all backends.
std::string default_backend() {
  for (const auto& row : weft::dist::backend_table()) {
    if (std::string(row.name) == "mpi") return "mpi";
  }
  return "shm";
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
  std::string backend = default_backend();
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
