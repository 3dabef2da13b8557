#include "weft/cli/program.h"
#include "weft/cli/start_tensors.h"
#include "weft/core/terminal/standard_streams.h"

// `weft`: loads no libtorch, which takes longer than what many verbs do.
int main(int argc, char** argv) {
  weft::core::open_standard_streams();
  return weft::cli::run_program({argv + 1, argv + argc}, weft::cli::start_tensor_program);
}
