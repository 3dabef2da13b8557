#include "weft/core/process_end.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace weft::core {
namespace {

// Handlers run in the reverse of the order in which they were registered.
void end_at_once(int status, void* /*unused*/) {
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

void end_without_destructors() { on_exit(end_at_once, nullptr); }

}  // namespace weft::core
