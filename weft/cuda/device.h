#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace weft::cuda {

/// Whether this build has the kernels.
bool is_built();
/// Throws ConfigError, beginning with `where`, unless is_built(). Needs no GPU and starts no
/// driver.
void require_built(const std::string& where);
/// Whether there are a GPU and its driver. Starts the driver: a process that did can't be copied
/// into one that uses GPUs.
bool has_device();
/// Makes this thread use GPU number `local_rank` of this host, counted round where there are fewer;
/// all else of this folder is to be called on it. Throws ConfigError, beginning with `where`, if
/// there is none or this build has no kernels.
void select_device(const std::string& where, int64_t local_rank);
/// The 16 bytes that tell this thread's GPU from all others anywhere. Throws ConfigError as
/// require_built does.
std::array<int64_t, 2> device_uuid();

}  // namespace weft::cuda
