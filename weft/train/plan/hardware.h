#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::train {

/// What one rank computes with. Peaks are what makers publish for dense matrices.
struct Hardware {
  std::string name;
  /// Floating-point operations per second in bfloat16 and in float32.
  double bfloat16_flops = 0;
  double float32_flops = 0;
  /// Bytes of memory, and bytes per second from it.
  double memory_bytes = 0;
  double memory_bandwidth = 0;
  /// Bytes per second that a rank sends within a host, and between hosts over an adapter of its
  /// own, one direction.
  double host_bandwidth = 0;
  double network_bandwidth = 0;
  int64_t ranks_per_host = 1;
  /// What of the peak large matrix products reach, and of a link's bandwidth collectives: usual
  /// figures, not promises.
  double compute_efficiency = 0.5;
  double link_efficiency = 0.8;

  double flops(int64_t dtype_bytes) const {
    return dtype_bytes == 2 ? bfloat16_flops : float32_flops;
  }
};

/// All that are known: a100 (80 GB SXM), h100 (SXM), h200, b200, cpu (one core with AVX-512).
const std::vector<Hardware>& hardware_table();

/// The row of that name. Throws ConfigError with the names that there are.
const Hardware& find_hardware(const std::string& name);

}  // namespace weft::train
