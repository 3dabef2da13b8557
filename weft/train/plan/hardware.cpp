#include "weft/train/plan/hardware.h"

#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"

namespace weft::train {
namespace {

Hardware gpu(const char* name, double bfloat16_tflops, double float32_tflops, double gigabytes,
             double terabytes_per_s) {
  Hardware hardware;
  hardware.name = name;
  hardware.bfloat16_flops = bfloat16_tflops * 1e12;
  hardware.float32_flops = float32_tflops * 1e12;
  hardware.memory_bytes = gigabytes * 1e9;
  hardware.memory_bandwidth = terabytes_per_s * 1e12;
  hardware.ranks_per_host = 8;
  return hardware;
}

Hardware linked(Hardware hardware, double host_gigabytes_per_s, double network_gigabytes_per_s) {
  hardware.host_bandwidth = host_gigabytes_per_s * 1e9;
  hardware.network_bandwidth = network_gigabytes_per_s * 1e9;
  return hardware;
}

// A core with AVX-512, without AMX, as measured with libtorch's matrix products; 64 to a host with
// 256 GB of memory and a network of 100 Gbit/s, which they share.
Hardware cpu_core() {
  Hardware core;
  core.name = "cpu";
  core.bfloat16_flops = 0.45e12;
  core.float32_flops = 0.2e12;
  core.memory_bytes = 4e9;
  core.memory_bandwidth = 5e9;
  core.host_bandwidth = 4e9;
  core.network_bandwidth = 12.5e9 / 64;
  core.ranks_per_host = 64;
  core.compute_efficiency = 0.6;
  return core;
}

}  // namespace

const std::vector<Hardware>& hardware_table() {
  // From the makers' data sheets: NVLink counts one direction, the network one adapter per GPU.
  static const std::vector<Hardware> table = {linked(gpu("a100", 312, 19.5, 80, 2.04), 300, 25),
                                              linked(gpu("h100", 989, 67, 80, 3.35), 450, 50),
                                              linked(gpu("h200", 989, 67, 141, 4.8), 450, 50),
                                              linked(gpu("b200", 2250, 75, 180, 7.7), 900, 50),
                                              cpu_core()};
  return table;
}

const Hardware& find_hardware(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const Hardware& hardware : hardware_table()) {
    if (hardware.name == name) return hardware;
    names.push_back(hardware.name);
    list += (list.empty() ? "" : ", ") + hardware.name;
  }
  core::fail<core::ConfigError>("hardware: expected one of ", list, ", got ", core::quote(name),
                                core::did_you_mean(name, names));
}

}  // namespace weft::train
