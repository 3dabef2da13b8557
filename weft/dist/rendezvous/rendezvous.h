#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "weft/core/files/file.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace c10d {
class Store;
}

namespace weft::dist {

/// A socket that listens on the interface with `address` only, at `port` (0: any free one; its
/// number is put there). Throws ConfigError if `address` is no address, IoError if it is none of
/// this host's or the port is in use.
core::FileDescriptor listen_on(const std::string& address, int& port);
core::FileDescriptor listen_on_loopback(int& port);

/// The address under which the other hosts of `info`'s job reach this one: that of the interface on
/// the way to MASTER_ADDR, or WEFT_ADDRESS. 127.0.0.1 if all ranks are on this host.
/// Throws ConfigError if there is no way to MASTER_ADDR.
std::string own_address(const RankInfo& info);

/// The server of a key-value store on a socket that already listens at `address`; takes the socket
/// over. libtorch's own would listen on all interfaces.
c10::intrusive_ptr<c10d::Store> serve_store(core::FileDescriptor socket, const std::string& address,
                                            int port, std::chrono::milliseconds timeout);

/// The store that is served at `address`. Waits for it up to `timeout`; throws c10d's errors.
c10::intrusive_ptr<c10d::Store> find_store(const std::string& address, int port,
                                           std::chrono::milliseconds timeout);

/// The store at which the ranks of `info`'s job meet: at MASTER_ADDR (as a client if the launcher
/// serves it, else rank 0 serves), or a file in the temporary folder if all ranks are on this host.
/// Throws ConfigError (several hosts, no MASTER_ADDR), CommError (nobody answers).
c10::intrusive_ptr<c10d::Store> open_store(const RankInfo& info, std::chrono::milliseconds timeout);

/// Removes the file behind `info`'s store, if it is one, when the ranks did not come together; in a
/// job that ends well the last rank to leave removes it.
void remove_store(const RankInfo& info);

/// Makes c10d's own log silent unless TORCH_CPP_LOG_LEVEL asks for it: weft says itself what went
/// wrong, in one line rather than a stack trace.
void quiet_c10d();

}  // namespace weft::dist
