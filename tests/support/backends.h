#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/backends.h"

namespace weft::test {

/// True if this build has the backend, or if WEFT_REQUIRE (a list with commas) names it: a test of
/// a backend that must be there is not left out.
inline bool should_test_backend(std::string_view name) {
  for (const dist::BackendRow& row : dist::backend_table()) {
    if (row.name == name) return true;
  }
  const char* required = std::getenv("WEFT_REQUIRE");
  if (required == nullptr) return false;
  return core::join(',', required, ',').find(core::join(',', name, ',')) != std::string::npos;
}

/// shm, gloo and, where should_test_backend says so, mpi.
inline std::vector<const char*> cpu_backends() {
  std::vector<const char*> names = {"shm", "gloo"};
  if (should_test_backend("mpi")) names.push_back("mpi");
  return names;
}

}  // namespace weft::test
