#pragma once

#include <chrono>
#include <string>

namespace c10d {
class Backend;
}

namespace weft::dist {

/// Proves the job's key over the connection to each other rank of `backend`, and has each of them
/// prove it: whoever took a rank's place while the ranks connected to each other cannot. Does
/// nothing without a key. Throws CommError, beginning with `where`, if a rank does not know the key
/// or does not answer within `timeout`. Collective over the backend's ranks.
void prove_key_between(c10d::Backend& backend, const std::string& key, const std::string& where,
                       std::chrono::milliseconds timeout);

}  // namespace weft::dist
