#include "weft/dist/mpi/transport.h"

#include <algorithm>
#include <array>
#include <vector>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

constexpr size_t kMessageBytes = 1 << 30;
constexpr int kHeadBytes = sizeof(Message);

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  MPI_Comm_size(comm, &size);
  return size;
}

// MPI knows ranks by the launcher's numbers.
std::vector<int> launcher_ranks(const GroupMonitor& monitor) {
  std::vector<int> ranks;
  for (const int rank : monitor.world_ranks()) {
    ranks.push_back(monitor.peers().peer(rank).launcher_rank);
  }
  return ranks;
}

// Calls `begin_one` for each piece of `bytes` that fits into one message.
template <class Function>
void for_pieces(uint64_t bytes, Function&& begin_one) {
  for (uint64_t start = 0; start < bytes; start += kMessageBytes) {
    begin_one(start, static_cast<int>(std::min<uint64_t>(kMessageBytes, bytes - start)));
  }
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiRuntime& runtime, std::span<const int> world_ranks, int tag)
    : runtime_(runtime) {
  const auto entered = runtime.enter();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  constexpr const char* kWhere = "dist.mpi: MPI_Comm_create_group";
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), kWhere);
  check_mpi(MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
            kWhere);
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm_);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check_mpi(code, kWhere);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (kept_ || ended != 0) return;
  const auto entered = runtime_.enter();
  MPI_Comm_free(&comm_);
}

MpiTransport::MpiTransport(MpiRuntime& runtime, std::shared_ptr<GroupMonitor> monitor, int tag)
    : waiter_(runtime, monitor),
      collective_comm_(runtime, launcher_ranks(*monitor), tag),
      message_comm_(runtime, launcher_ranks(*monitor), tag + 1),
      collectives_(collective_comm_.get(), rank_in(collective_comm_.get()),
                   size_of(collective_comm_.get()), waiter_) {}

// Begun at once, so that the receiver may take messages of different tags in any order. The head is
// sent so that it ends only when it is received: a rank that has ended its sends may leave.
std::function<void()> MpiTransport::begin_send(int destination, const Message& message,
                                               const std::byte* data) {
  struct Begun {
    Message head;
    std::vector<MPI_Request> requests;
  };
  const auto begun = std::make_shared<Begun>();
  begun->head = message;
  const MPI_Comm comm = message_comm_.get();
  const auto begin_piece = [&](auto&& function) {
    begun->requests.push_back(MPI_REQUEST_NULL);
    waiter_.begin(OpKind::kSend, [&] { return function(&begun->requests.back()); });
  };
  begin_piece([&](MPI_Request* request) {
    return MPI_Issend(&begun->head, kHeadBytes, MPI_BYTE, destination, message.tag, comm, request);
  });
  for_pieces(message.bytes, [&](uint64_t start, int bytes) {
    begin_piece([&](MPI_Request* request) {
      return MPI_Isend(data + start, bytes, MPI_BYTE, destination, message.tag, comm, request);
    });
  });
  return
      [this, begun, destination] { waiter_.wait_for(destination, begun->requests, OpKind::kSend); };
}

void MpiTransport::receive(int source, const Message& message, std::byte* data) {
  Message got;
  MPI_Request request = MPI_REQUEST_NULL;
  waiter_.begin(OpKind::kReceive, [&] {
    return MPI_Irecv(&got, kHeadBytes, MPI_BYTE, source, message.tag, message_comm_.get(),
                     &request);
  });
  waiter_.wait_for(source, {&request, 1}, OpKind::kReceive);
  receive_body(source, message, got, data);
}

int MpiTransport::receive_any(const Message& message, std::byte* data) {
  Message got;
  MPI_Request request = MPI_REQUEST_NULL;
  waiter_.begin(OpKind::kReceive, [&] {
    return MPI_Irecv(&got, kHeadBytes, MPI_BYTE, MPI_ANY_SOURCE, message.tag, message_comm_.get(),
                     &request);
  });
  std::array<MPI_Status, 1> status{};
  waiter_.wait({&request, 1}, OpKind::kReceive, status);
  receive_body(status[0].MPI_SOURCE, message, got, data);
  return status[0].MPI_SOURCE;
}

// What does not fit is taken all the same, so that the sender and later messages can proceed.
void MpiTransport::receive_body(int source, const Message& message, const Message& got,
                                std::byte* data) {
  const bool fits = message.bytes == got.bytes && message.dtype == got.dtype;
  std::vector<std::byte> unwanted(fits ? 0 : got.bytes);
  std::byte* const to = fits ? data : unwanted.data();
  std::vector<MPI_Request> requests;
  for_pieces(got.bytes, [&](uint64_t start, int bytes) {
    requests.push_back(MPI_REQUEST_NULL);
    waiter_.begin(OpKind::kReceive, [&] {
      return MPI_Irecv(to + start, bytes, MPI_BYTE, source, message.tag, message_comm_.get(),
                       &requests.back());
    });
  });
  waiter_.wait_for(source, requests, OpKind::kReceive);
  if (fits) return;
  const auto name = [](int32_t dtype) {
    return c10::toString(static_cast<c10::ScalarType>(dtype));
  };
  const GroupMonitor& monitor = waiter_.monitor();
  core::fail<core::CommError>(monitor.where(OpKind::kReceive), ": expected ", message.bytes,
                              " bytes of ", name(message.dtype), ", but ",
                              monitor.peer_name(source), " sent ", got.bytes, " bytes of ",
                              name(got.dtype), "; give both the same shape and type");
}

void MpiTransport::give_up(const char* text) { waiter_.runtime().fail(text); }

void MpiTransport::leave(bool in_error) {
  bool usable = !in_error;
  try {
    waiter_.runtime().check_usable();
  } catch (const core::CommError&) {
    usable = false;
  }
  if (usable) return;
  waiter_.cancel();
  waiter_.runtime().skip_end();
  collective_comm_.keep();
  message_comm_.keep();
}

}  // namespace weft::dist
