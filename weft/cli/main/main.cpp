#include "weft/cli/program.h"
#include "weft/cli/start_tensors.h"

// `weft`: loads no libtorch, which takes longer than what many verbs do.
int main(int argc, char** argv) {
  return weft::cli::run_program({argv + 1, argv + argc}, weft::cli::start_tensor_program);
}
