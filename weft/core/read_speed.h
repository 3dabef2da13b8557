#pragma once

#include <cstdint>

namespace weft::core {

/// Bytes per second that `threads` threads read together from memory, the best of several times:
/// what weights that fill no cache can come at. Takes about a tenth of a second and 32 MiB a
/// thread, but at least 128 MiB, for a while. Throws IoError if there is no memory.
double read_bytes_per_second(int64_t threads);

}  // namespace weft::core
