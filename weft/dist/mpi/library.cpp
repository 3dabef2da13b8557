#include "weft/dist/mpi/library.h"

#include "weft/dist/mpi/transport.h"
#include "weft/version.h"

extern "C" {

extern weft::dist::MpiLibraryVersion weft_mpi_version;
extern weft::dist::MakeMpiTransport weft_mpi_transport;
extern weft::dist::MpiBroadcast weft_mpi_broadcast;

const char* weft_mpi_version() { return WEFT_VERSION; }

weft::dist::BlockTransport* weft_mpi_transport(
    const weft::dist::RankInfo& info, const std::shared_ptr<weft::dist::GroupMonitor>& monitor,
    int tag) {
  using namespace weft::dist;
  MpiRuntime& runtime = MpiRuntime::start(info, monitor);
  return std::make_unique<MpiTransport>(runtime, monitor, tag).release();
}

void weft_mpi_broadcast(const weft::dist::RankInfo& info, char* bytes, int size,
                        std::chrono::milliseconds timeout) {
  weft::dist::MpiRuntime::broadcast(info, bytes, size, timeout);
}
}
