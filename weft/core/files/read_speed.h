#pragma once

#include <cstdint>

namespace weft::core {

/// Bytes per second that `threads` threads read together from memory, each at its best of several
/// times: what weights that fill no cache can come at. Takes about a tenth of a second, and 64 MiB
/// a thread for that while. Throws IoError if there is no memory.
double read_bytes_per_second(int64_t threads);

}  // namespace weft::core
