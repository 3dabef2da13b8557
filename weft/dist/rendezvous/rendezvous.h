#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/core/files/file.h"
#include "weft/dist/rendezvous/rank_info.h"
#include "weft/dist/store/client.h"

namespace c10d {
class Store;
}

namespace weft::dist {

class StoreServer;

/// A socket that listens at `address` only, a name or an address of IPv4 or IPv6, at `port` (0: any
/// free one; its number is put there). A name that is not known yet is tried again for `patience`.
/// Throws ConfigError if `address` is no address, IoError if it
/// is none of this host's or the port is in use.
core::FileDescriptor listen_on(const std::string& address, int& port,
                               std::chrono::milliseconds patience = {});
core::FileDescriptor listen_on_loopback(int& port);

/// The address under which the other hosts of `info`'s job reach this one: WEFT_ADDRESS, or that of
/// the interface on the way to MASTER_ADDR, or, where MASTER_ADDR is this host, that of its only
/// interface. 127.0.0.1 if all ranks are on this host. Throws ConfigError if there is no way to
/// MASTER_ADDR, or several interfaces and no word on which.
std::string own_address(const RankInfo& info);

/// The store at which the ranks of a job meet.
struct Meeting {
  /// On the rank that serves the store; goes after what uses it.
  std::shared_ptr<StoreServer> server;
  c10::intrusive_ptr<c10d::Store> store;
  /// Where weft's store listens; nothing where the ranks meet through a file.
  std::optional<StoreEndpoint> endpoint;
};

/// Gives rank 0's text to all ranks before they have met, by the launcher's own means. Collective
/// over the world.
using BroadcastText = std::function<std::string(const RankInfo& info, const std::string& text,
                                                std::chrono::milliseconds timeout)>;

/// Opens the store of `info`'s job: at MASTER_ADDR, where the launcher or rank 0 serves it (under
/// torchrun, whose own store says where); under mpirun on several hosts where rank 0 says `by_mpi`,
/// if there is that, and then that becomes `info`'s MASTER_ADDR; or a file in the temporary folder
/// if all ranks are on this host. Names that are not known yet and stores that do not listen yet
/// are tried again until `timeout`. Throws ConfigError (several hosts, no MASTER_ADDR; another
/// job's key), CommError (nobody answers).
Meeting open_store(RankInfo& info, std::chrono::milliseconds timeout,
                   const BroadcastText& by_mpi = nullptr);

/// Removes the file behind `info`'s store, if it is one, when the ranks did not come together; in a
/// job that ends well the last rank to leave removes it.
void remove_store(const RankInfo& info);

/// Makes c10d's own log silent unless TORCH_CPP_LOG_LEVEL asks for it: weft says itself what went
/// wrong, in one line rather than a stack trace.
void quiet_c10d();

}  // namespace weft::dist
