#include "weft/dist/mpi/runtime.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;
using core::check;
using core::CommError;
using core::ConfigError;

constexpr const char* kMpi = "dist.World: backend mpi: ";

// Our launcher says in one line what became of a rank; Open MPI would add a stack trace of its own.
void quiet_openmpi() { setenv("OMPI_MCA_opal_signal", "", 0); }

void check_ranks(const RankInfo& info) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), kMpi);
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), kMpi);
  check<ConfigError>(rank == info.launcher_rank && size == info.size, kMpi, "MPI sees rank ", rank,
                     " of ", size, ", but ", info.launcher, " started rank ", info.launcher_rank,
                     " of ", info.size,
                     "; start the ranks by mpirun, or by weft launch with the backend mpi");
}

}  // namespace

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

void check_mpi(int code, const std::string& where) {
  if (code == MPI_SUCCESS) [[likely]] {
    return;
  }
  core::fail<CommError>(where, ": ", mpi_error_text(code));
}

MpiRuntime& MpiRuntime::only() {
  static MpiRuntime memory;
  return memory;
}

MpiRuntime& MpiRuntime::start(const RankInfo& info, const std::shared_ptr<GroupMonitor>& monitor) {
  static MpiRuntime* const made = [&] {
    only().begin(info);
    only().monitor_ = monitor;
    // Under our own launcher nobody is ended because a rank has left without a word.
    if (info.launcher != "weft") only().patience_ = monitor->timeout();
    return &only();
  }();
  check_ranks(info);
  return *made;
}

void MpiRuntime::broadcast(const RankInfo& info, char* bytes, int size,
                           std::chrono::milliseconds timeout) {
  MpiRuntime& mpi = only();
  mpi.begin(info);
  const auto entered = mpi.enter();
  constexpr const char* kBroadcast = "dist.mpi: MPI_Ibcast";
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(bytes, size, MPI_BYTE, 0, MPI_COMM_WORLD, &request), kBroadcast);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int done = 0; done == 0; std::this_thread::sleep_for(200us)) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), kBroadcast);
    const bool in_time = done != 0 || std::chrono::steady_clock::now() < deadline;
    check<CommError>(in_time, kBroadcast, ": rank 0 did not come within ", timeout / 1s,
                     " s; did it start? (WEFT_START_TIMEOUT_S)");
  }
}

void MpiRuntime::begin(const RankInfo& info) {
  int begun = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  if (begun != 0) {
    MPI_Query_thread(&provided);
  } else {
    quiet_openmpi();
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), kMpi);
    begun_here_ = true;
    // Unlike atexit it tells the status. MPI is not ended in order when the program has failed: the
    // others might be waiting for this rank, and MPI would wait for them. Nor is it ended by a copy
    // of this process, which has no part in it.
    static const pid_t beginner = getpid();
    const auto end_own = [](int status, void* /*unused*/) {
      if (getpid() == beginner) only().end(status);
    };
    on_exit(end_own, nullptr);
  }
  check<ConfigError>(provided >= MPI_THREAD_SERIALIZED, kMpi,
                     "MPI was begun for one thread only; call MPI_Init_thread with "
                     "MPI_THREAD_MULTIPLE, or leave it to weft");
  all_threads_ = provided == MPI_THREAD_MULTIPLE;
  // Otherwise an error ends the process on the spot.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_ranks(info);
}

void MpiRuntime::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  failure_ = text;
  failed_.store(true, std::memory_order_release);
}

void MpiRuntime::throw_failure() const { throw CommError(failure_); }

void MpiRuntime::end(int status) {
  if (status != 0 || failed_.load() || skip_end_.load()) return;
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0 && others_end_too()) MPI_Finalize();
}

// MPI_Finalize waits for all ranks, however long: first it is seen whether they come.
bool MpiRuntime::others_end_too() const {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
  const auto watch = monitor_ != nullptr ? monitor_->watch() : nullptr;
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (true) {
    int done = 0;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (watch != nullptr && watch->trouble()) return false;
    std::this_thread::sleep_for(200us);
  }
}

}  // namespace weft::dist
