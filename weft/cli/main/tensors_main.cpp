#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "weft/cli/program.h"
#include "weft/cli/tensor_verbs.h"
#include "weft/core/terminal/standard_streams.h"

namespace {

// Runs behind what the program itself leaves for its end, before what libraries were loaded with:
// taking libtorch's tables of operators apart takes a tenth of a second, and all memory goes with
// the process anyway.
void end_at_once(int status, void* /*unused*/) {
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

int main(int argc, char** argv) {
  weft::core::open_standard_streams();
  on_exit(end_at_once, nullptr);
  return weft::cli::run_program({argv + 1, argv + argc}, weft::cli::run_tensor_verb);
}
