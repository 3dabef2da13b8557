#include "weft/quant/kernels/select.h"

#include <array>
#include <cstdlib>
#include <string>

#include "weft/core/error.h"

namespace weft::quant::kernels {
namespace {

constexpr std::array kKernels = {
#if defined(__x86_64__)
    &kAmxKernel,
    &kAvx512Kernel,
    &kAvx2Kernel,
#endif
    &kPlainKernel,
};

std::string names_that_run(std::span<const Kernel* const> table) {
  std::string names;
  for (const Kernel* kernel : table) {
    if (!kernel->runs_here()) continue;
    if (!names.empty()) names += ", ";
    names += kernel->name;
  }
  return names;
}

}  // namespace

std::span<const Kernel* const> all_kernels() { return kKernels; }

const Kernel& select_kernel_of(std::span<const Kernel* const> table, const std::string& name) {
  const char* reason = "; correct or unset it";
  for (const Kernel* kernel : table) {
    const bool is_wanted = name.empty() || name == kernel->name;
    if (is_wanted && kernel->runs_here()) return *kernel;
    if (name == kernel->name) reason = ", which this CPU cannot run; choose another or unset it";
  }
  core::fail<core::ConfigError>("quant.kernels: WEFT_CPU_KERNEL, expected one of ",
                                names_that_run(table), ", got \"", name, "\"", reason);
}

const Kernel& select_kernel(const std::string& name) {
  return select_kernel_of(all_kernels(), name);
}

const Kernel& active_kernel() {
  static const Kernel& kernel = []() -> const Kernel& {
    const char* wanted = std::getenv("WEFT_CPU_KERNEL");
    return select_kernel(wanted == nullptr ? "" : wanted);
  }();
  return kernel;
}

}  // namespace weft::quant::kernels
