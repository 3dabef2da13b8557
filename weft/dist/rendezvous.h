#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "weft/core/file.h"
#include "weft/dist/rank_info.h"

namespace c10d {
class Store;
}

namespace weft::dist {

/// A socket that listens on 127.0.0.1 only, at `port` (0: any free one; its number is put there).
/// Throws IoError if the port is in use.
core::FileDescriptor listen_on_loopback(int& port);

/// The server of a key-value store on a socket that already listens; takes the socket over.
/// libtorch's own would listen on all interfaces.
c10::intrusive_ptr<c10d::Store> serve_store(core::FileDescriptor socket, int port,
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
