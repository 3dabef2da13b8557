#pragma once

#include <string>

namespace weft::cli {

/// What `weft --version` prints: weft's version, the commit if it was built in a clone, the
/// libtorch that it was built with, and the backends that this build has.
std::string version_text();

}  // namespace weft::cli
