#include "weft/core/memory/start_code.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace weft::core {
namespace {

bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return line.find_first_not_of("\t 0", 10) != line.npos;
  }
  return true;
}

// Segments that can't be written are as their file is; pages of others hold relocated addresses.
int release(dl_phdr_info* object, size_t /*size*/, void* /*data*/) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t start = object->dlpi_addr + segment.p_vaddr, end = start + segment.p_memsz;
    const uintptr_t first = start / page * page;
    // Best effort: what the kernel refuses stays where it is.
    madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void release_start_code() {
  if (!is_traced()) dl_iterate_phdr(release, nullptr);
}

}  // namespace weft::core
