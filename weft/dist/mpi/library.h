#pragma once

#include <chrono>
#include <memory>

#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/group_monitor.h"
#include "weft/dist/rendezvous/rank_info.h"

// What libweft_mpi.so, which is all of this folder, gives to the program that loads it. It holds no
// code of the rest of weft::dist: what it calls there is virtual or stands in a header.

namespace weft::dist {

/// weft_mpi_version in the library: the version of weft that it was built with.
using MpiLibraryVersion = const char*();

/// weft_mpi_transport in the library: a new transport over MPI, which is begun if it was not. `tag`
/// and the next number tell the group from others that are made at the same time. Collective over
/// the group, the first time over the world. Throws as MpiRuntime::start and MpiCommunicator do.
using MakeMpiTransport = BlockTransport*(const RankInfo& info,
                                         const std::shared_ptr<GroupMonitor>& monitor, int tag);

/// weft_mpi_broadcast in the library: gives rank 0's `size` bytes at `bytes` to all ranks. MPI is
/// begun if it was not. Collective over the world. Throws as MpiRuntime::start does, and CommError
/// if not all come within `timeout`.
using MpiBroadcast = void(const RankInfo& info, char* bytes, int size,
                          std::chrono::milliseconds timeout);

}  // namespace weft::dist
